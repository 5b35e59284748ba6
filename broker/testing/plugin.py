"""The pytest plugin: fixtures for a clock, a bus, a host and a session, and what happened in the report of a failure.

It is registered through the entry point ``pytest11`` and imports nothing of the kit before a fixture is asked for.
``--broker-seed N`` has every host of the fixtures take its steps in an order drawn from ``N``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from broker.bus import Bus
    from broker.testing.clock import ManualClock
    from broker.testing.driven import DrivenSession
    from broker.testing.host import MemoryHost
    from broker.testing.processes import ProcessHost, ProcessSession
    from broker.testing.session import MemorySession

SECTION = "broker: what happened"

_FAILED = pytest.StashKey[bool]()
_HOSTS = pytest.StashKey["list[MemoryHost | ProcessHost]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--broker-seed``."""
    parser.getgroup("broker").addoption(
        "--broker-seed",
        type=int,
        default=None,
        metavar="N",
        help="take the steps of in-memory extensions in an order drawn from N (default: a fixed order)",
    )


@pytest.fixture
def broker_clock() -> ManualClock:
    """The clock of the other fixtures, which only the test moves."""
    from broker.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def broker_bus(broker_clock: ManualClock) -> Iterator[Bus]:
    """A bus of its own, on the clock; closed at the end."""
    from broker.bus import Bus

    bus = Bus(broker_clock)
    yield bus
    bus.close()


@pytest.fixture
def broker_host(request: pytest.FixtureRequest, broker_clock: ManualClock) -> Iterator[MemoryHost]:
    """A :class:`~broker.testing.MemoryHost`; at the end every session is closed and every script has to be played."""
    from broker.testing.host import MemoryHost

    host = MemoryHost(seed=request.config.getoption("broker_seed"), clock=broker_clock)
    request.node.stash.setdefault(_HOSTS, []).append(host)
    yield host
    # A test that failed has said what is wrong; what follows from that would only hide it.
    if not request.node.stash.get(_FAILED, False):
        host.finish()


@pytest.fixture
def broker_session(broker_host: MemoryHost) -> MemorySession:
    """A :class:`~broker.testing.MemorySession` of the host."""
    return broker_host.open_session()


@pytest.fixture
def broker_open(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., MemorySession]]:
    """Opens sessions on the test's directory, ``broker_open(services=...)``, each on a host of its own in memory."""
    yield from _openers(request, tmp_path, "memory")


@pytest.fixture
def broker_processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., ProcessSession]]:
    """The same over real processes."""
    yield from _openers(request, tmp_path, "process")


@pytest.fixture(params=["memory", "process"])
def broker_both_ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., DrivenSession]]:
    """The same, and the test is run twice: with sessions in memory, then over real processes.

    Over processes ``patience_ms`` is left out, as it means another time there.
    """
    yield from _openers(request, tmp_path, request.param)


def _openers(request: pytest.FixtureRequest, directory: Path, kind: str) -> Iterator[Callable[..., Any]]:
    from broker.testing.host import MemoryHost
    from broker.testing.processes import ProcessHost

    hosts: list[MemoryHost | ProcessHost] = []
    shown = request.node.stash.setdefault(_HOSTS, [])

    def open_session(**options: Any) -> MemorySession | ProcessSession:
        if kind == "memory":
            hosts.append(MemoryHost(seed=request.config.getoption("broker_seed"), **options))
        else:
            options.pop("patience_ms", None)
            hosts.append(ProcessHost(directory, **options))
        shown.append(hosts[-1])
        return hosts[-1].open_session(str(directory))

    yield open_session
    # What one host has to say about its end keeps no other from ending.
    with ExitStack() as ends:
        for host in reversed(hosts):
            if not request.node.stash.get(_FAILED, False):
                ends.callback(host.finish)
            elif isinstance(host, ProcessHost):
                ends.callback(host.abandon)


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what happened to the report of a test that failed."""
    report = yield
    hosts = item.stash.get(_HOSTS, [])
    if report.failed and hosts:
        item.stash[_FAILED] = True
        report.sections.append((SECTION, "\n".join(_told(item, host) for host in hosts)))
    return report


def _told(item: pytest.Item, host: MemoryHost | ProcessHost) -> str:
    parts: list[str] = []
    test = item.nodeid.replace("'", "'\\''")
    for number, session in enumerate(host.sessions, 1):
        if len(host.sessions) > 1:
            parts.append(f"   session {number}")
        parts.append(str(session.recorder))
    if host.seed is not None:
        parts.append(f"   to replay: pytest '{test}' --broker-seed={host.seed}")
    else:
        parts.append(f"   to replay: pytest '{test}' (in the fixed order; try others with --broker-seed=N)")
    return "\n".join(parts)
