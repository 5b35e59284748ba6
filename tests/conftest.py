"""Ties tests to the rules they show (``@pytest.mark.spec("octet.framing.at-bound")``); extensions on disk for them."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from broker.testing import write_extension

sys.path.append(str(Path(__file__).parent / "adapters"))
from rogue_kit import program

# How long an example takes says something about the machine, not about the code: the first draw of a fresh checkout
# builds tables of characters, and other work may have the processor meanwhile.
# The same examples each time: what fails has to fail for the change that broke it, not for the next one by chance. To
# look for more, run with --hypothesis-profile=search, now and then, and keep what it finds as an example.
settings.register_profile("any-machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", settings.get_profile("any-machine"), derandomize=False, print_blob=True)
settings.load_profile("any-machine")

# The plugin comes by its entry point where the project is installed, and from here where it runs from its sources.
_INSTALLED = any(point.name == "broker" for point in metadata.entry_points(group="pytest11"))
pytest_plugins = ["pytester", *(() if _INSTALLED else ("broker.testing.plugin",))]

_COLLECTED: pytest.StashKey[dict[str, list[str]]] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected: dict[str, list[str]] = {}
    for item in items:
        for mark in item.iter_markers("spec"):
            if mark.kwargs or not mark.args or not all(isinstance(rule_id, str) for rule_id in mark.args):
                raise pytest.UsageError(f"{item.nodeid}: spec takes rule ids as strings, got {mark.args} {mark.kwargs}")
            for rule_id in mark.args:
                collected.setdefault(rule_id, []).append(item.nodeid)
    config.stash[_COLLECTED] = collected


@pytest.fixture(scope="session")
def collected_spec_ids(pytestconfig: pytest.Config) -> dict[str, list[str]]:
    """The rule ids that this run's tests carry, each with the tests that carry it."""
    return pytestconfig.stash[_COLLECTED]


@pytest.fixture(scope="session", autouse=True)
def _plain_surroundings() -> Iterator[None]:
    """What the surroundings wish for is nothing to the tests and the processes they start.

    That is colours and columns, and signals that are ignored, as under nohup and in the background of a script.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with pytest.MonkeyPatch.context() as patch:
        for name in "CLICOLOR CLICOLOR_FORCE COLUMNS FORCE_COLOR LINES NO_COLOR PY_COLORS TTY_COMPATIBLE".split():
            patch.delenv(name, raising=False)
        yield


# -- extensions on disk ------------------------------------------------------------------------------------------------


Rogue = Callable[..., Path]


@pytest.fixture
def rogue(tmp_path: Path) -> Rogue:
    """Writes an extension whose program is the given text; gives its directory."""

    def make(body: str = "echo()", *, name: str = "rogue", **fields: Any) -> Path:
        given = {"tools": ["work"], **fields}
        return write_extension(tmp_path / "extensions" / name, program(body), name=name, **given)

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

    def check(*pids: int, within: float = 20.0) -> None:
        assert pids
        deadline = time.monotonic() + within
        while left := [pid for pid in pids if _running(pid)]:
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.01)

    return check
