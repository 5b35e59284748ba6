"""What a written program does: be the process of an object. It imports little, so that it starts quickly."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from broker.errors import UsageError
from broker.testing.scripted import ScriptedProcess, serve_stdio


def serve(file: str, factory: str, name: str) -> None:
    """Be the process of what ``factory`` of the module in ``file`` makes; what a written program calls."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is no module", path=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    thing: Any = module
    for part in factory.split("."):
        thing = getattr(thing, part)
    made = thing()
    if not isinstance(made, ScriptedProcess):
        made = _player_of(made, factory, name)
    serve_stdio(made)


def _player_of(made: Any, factory: str, name: str) -> ScriptedProcess:
    from broker.testing.script import Script
    from broker.testing.script_run import player_of

    if not isinstance(made, Script):
        raise UsageError(f"{factory} made {made!a:.80}, which cannot be a process")
    return player_of(made, name)
