"""Extensions on disk, and what may be left of them."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _load(name: str) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "adapters" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


rogue_kit = _load("rogue_kit")
Rogue = Callable[..., Path]


@pytest.fixture
def rogue(tmp_path: Path) -> Rogue:
    """Writes an extension whose program is the given text; gives its directory."""

    def make(body: str = "echo()", *, name: str = "rogue", **options: Any) -> Path:
        directory: Path = rogue_kit.write_extension(tmp_path / "extensions" / name, body, name=name, **options)
        return directory

    return make


def _running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture
def gone() -> Callable[..., None]:
    """Asserts that none of the processes runs any more, at the latest after ``within`` seconds."""

    def check(*pids: int, within: float = 3.0) -> None:
        assert pids
        deadline = time.monotonic() + within
        while left := [pid for pid in pids if _running(pid)]:
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.01)

    return check
