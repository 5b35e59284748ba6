"""The public test kit: hosts whose extensions are objects, on a clock that tests move, without processes and sleeps.

:class:`MemoryHost` is where to begin. The names of this package are imported when they are first used, so that a test
run which uses none of it (the pytest plugin is always there) pays for none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.testing.assertions import Pattern, Recorded, entry
    from broker.testing.clock import ManualClock
    from broker.testing.driven import DrivenSession
    from broker.testing.faults import Fault, Faults, When, at, heard, sent
    from broker.testing.host import MemoryHost
    from broker.testing.hosted import HostedExtension
    from broker.testing.memory import MemoryDriver
    from broker.testing.mixed import MixedHost, MixedSession
    from broker.testing.plan import HasProcess, ProcessPlan, make_manifest, process_of
    from broker.testing.processes import ProcessHost, ProcessSession
    from broker.testing.program import write_extension, write_server
    from broker.testing.recorder import Recorder
    from broker.testing.schedule import Interleaving, Schedule, SeededSchedule
    from broker.testing.script import Script
    from broker.testing.script_run import ScriptError
    from broker.testing.scripted import (
        ScriptedExtension,
        ScriptedFeatureExtension,
        ScriptedProcess,
        ScriptedServer,
        serve_stdio,
    )
    from broker.testing.search import FailingInterleaving, explore, find_failing_interleaving, interleavings
    from broker.testing.sequence import Entry, SequenceError
    from broker.testing.session import MemorySession

_WHERE = {
    "assertions": ("Pattern", "Recorded", "entry"),
    "clock": ("ManualClock",),
    "driven": ("DrivenSession",),
    "search": ("FailingInterleaving", "explore", "find_failing_interleaving", "interleavings"),
    "hosted": ("HostedExtension",),
    "faults": ("Fault", "Faults", "When", "at", "heard", "sent"),
    "host": ("MemoryHost",),
    "memory": ("MemoryDriver",),
    "mixed": ("MixedHost", "MixedSession"),
    "plan": ("HasProcess", "ProcessPlan", "make_manifest", "process_of"),
    "processes": ("ProcessHost", "ProcessSession"),
    "program": ("write_extension", "write_server"),
    "recorder": ("Recorder",),
    "schedule": ("Interleaving", "Schedule", "SeededSchedule"),
    "script": ("Script",),
    "script_run": ("ScriptError",),
    "scripted": ("ScriptedExtension", "ScriptedFeatureExtension", "ScriptedProcess", "ScriptedServer", "serve_stdio"),
    "sequence": ("Entry", "SequenceError"),
    "session": ("MemorySession",),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "DrivenSession",
    "Entry",
    "FailingInterleaving",
    "Fault",
    "Faults",
    "HasProcess",
    "HostedExtension",
    "Interleaving",
    "ManualClock",
    "MemoryDriver",
    "MemoryHost",
    "MemorySession",
    "MixedHost",
    "MixedSession",
    "Pattern",
    "ProcessHost",
    "ProcessPlan",
    "ProcessSession",
    "Recorded",
    "Recorder",
    "Schedule",
    "Script",
    "ScriptError",
    "ScriptedExtension",
    "ScriptedFeatureExtension",
    "ScriptedProcess",
    "ScriptedServer",
    "SeededSchedule",
    "SequenceError",
    "When",
    "at",
    "entry",
    "explore",
    "find_failing_interleaving",
    "heard",
    "interleavings",
    "make_manifest",
    "process_of",
    "sent",
    "serve_stdio",
    "write_extension",
    "write_server",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
