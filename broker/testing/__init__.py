"""The public test kit: a clock that tests move, extensions as objects, a driver without processes."""

from __future__ import annotations

from broker.testing.clock import ManualClock
from broker.testing.memory import MemoryDriver
from broker.testing.scripted import (
    ScriptedExtension,
    ScriptedFeatureExtension,
    ScriptedProcess,
    ScriptedServer,
    serve_stdio,
)

__all__ = [
    "ManualClock",
    "MemoryDriver",
    "ScriptedExtension",
    "ScriptedFeatureExtension",
    "ScriptedProcess",
    "ScriptedServer",
    "serve_stdio",
]
