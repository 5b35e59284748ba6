"""Providers in memory and as real processes: streams, and SIGKILL at each step of their life.

Whatever dies and whenever, the host is whole, the catalogue has only what is alive, and each waiter is answered once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_scripts import (
    Deaf,
    DiesAtCancel,
    DiesAtInitialize,
    DiesAtShutdown,
    DiesWhenRegistered,
    Flood,
    Other,
    Provider,
)

from broker.errors import BrokerError, CancelledError, ExitedError, ResourceExhaustedError
from broker.host import HostServices, HostSettings, ProviderRegistry, ProviderStream
from broker.testing import DrivenSession, Faults, ProcessHost
from broker.wire.octet.stream_models import Finished, StreamStarted, TextDelta

SETTINGS = HostSettings(restart=False, shutdown_timeout_ms=500, exit_grace_ms=500)


class Host:
    """A session with a registry, one provider that gets into trouble and one beside it that does not."""

    def __init__(self, world: Any, registry: ProviderRegistry) -> None:
        self.world = world
        self.registry = registry
        self.ends: dict[str, list[str]] = {}

    def start(self, script: type[Provider], name: str) -> Any:
        extension = self.world.start(script, name=name, providers=True)
        self.world.until(lambda: self.owners(script.provider) == [1])
        return extension

    def owners(self, provider: str) -> list[int]:
        return [one.owner.generation for one in self.registry.providers if one.id == provider]

    def stream(self, do: str, provider: str = "acme", count: int = 3) -> ProviderStream:
        stream: ProviderStream = self.world.session.stream(provider, "small", {"do": do, "count": count})
        events = self.ends.setdefault(stream.id + provider, [])
        stream.accepted.add_callback(lambda done: events.append("accepted" if done.error is None else "not accepted"))
        return stream

    def read(self, stream: ProviderStream) -> list[Any]:
        """Everything until its end, which is read once."""
        found: list[Any] = []
        ends: list[BrokerError | None] = []

        def more() -> bool:
            try:
                while (event := stream.take()) is not None:
                    found.append(event)
            except BrokerError as error:
                ends.append(error)
                found.append(error)
                return True
            return stream.ended

        self.world.until(more)
        return found

    def whole(self, *names: str) -> None:
        """The other provider still streams, and nothing of the dead is left."""
        assert [one.id for one in self.registry.providers] == ["other"]
        events = self.read(self.stream("finish", "other"))
        assert [type(event) for event in events] == [StreamStarted, TextDelta, TextDelta, TextDelta, Finished]
        assert all(len(ends) == 1 for ends in self.ends.values())


@pytest.fixture
def host(broker_both_ways: Callable[..., DrivenSession]) -> Iterator[Host]:
    registry = ProviderRegistry()
    world = broker_both_ways(patience_ms=0, settings=SETTINGS, services=HostServices(providers=registry))
    yield Host(world, registry)
    world.close()
    assert registry.providers == ()


@pytest.mark.spec("octet.capability.provider-stream", "octet.provider.stream-sequence")
@pytest.mark.parametrize("count", [3, 2_000])
def test_a_stream_is_read_to_its_end(host: Host, count: int) -> None:
    host.start(Provider, "ext")
    stream = host.stream("finish", count=count)
    events = host.read(stream) if count <= 16 else read_while_it_comes(host, stream)
    assert [event.delta for event in events if isinstance(event, TextDelta)] == [str(n) for n in range(count)]
    assert events[-1] == Finished(stop_reason="stop")


def read_while_it_comes(host: Host, stream: ProviderStream) -> list[Any]:
    """A reader that is woken and then takes what there is."""
    found: list[Any] = []

    def more() -> None:
        while (event := stream.take()) is not None:
            found.append(event)

    stream.set_listener(lambda: more() if stream.full or stream.closed else None)
    host.world.until(lambda: stream.closed)
    more()
    return found


@pytest.mark.spec("octet.provider.stream-cancel")
def test_a_cancel_reaches_the_provider_and_the_process_lives(host: Host) -> None:
    extension = host.start(Provider, "ext")
    stream = host.stream("hang")
    host.world.until(lambda: stream.buffered == 4)
    stream.cancel("enough")
    assert isinstance(host.read(stream)[0], CancelledError)
    heard = host.world.settle(extension.call("log", {})).metadata["heard"]
    assert heard.count("provider/cancel") == 1
    assert [type(event) for event in host.read(host.stream("finish"))][-1] is Finished


@pytest.mark.parametrize(
    ("do", "kept"), [("die asked", []), ("die accepted", []), ("die streaming", [StreamStarted, TextDelta, TextDelta])]
)
def test_killed_while_streaming(host: Host, do: str, kept: list[type]) -> None:
    host.start(Other, "other")
    host.start(Provider, "ext")
    bystander = host.stream("hang")
    stream = host.stream(do, count=2)
    *events, error = host.read(stream)
    assert [type(event) for event in events] == kept
    assert isinstance(error, ExitedError) and error.status == -9
    *_, error = host.read(bystander)
    assert isinstance(error, ExitedError)
    host.whole()


def test_killed_while_its_first_request_waits(host: Host) -> None:
    host.start(Other, "other")
    extension = host.start(Provider, "ext")
    waiting, open_ = host.stream("silence"), host.stream("hang")
    call = extension.call("log", {})
    host.world.until(lambda: open_.buffered == 4)
    host.world.inject(Faults().kill("ext"))
    assert [type(event) for event in host.read(waiting)] == [ExitedError]
    assert type(host.read(open_)[-1]) is ExitedError
    host.world.until(lambda: call.done)
    host.whole()


def test_killed_when_it_is_told_to_stop_a_stream(host: Host) -> None:
    host.start(Other, "other")
    extension = host.start(DiesAtCancel, "ext")
    stream, sibling = host.stream("hang"), host.stream("hang")
    host.world.until(lambda: stream.buffered == 4 and sibling.buffered == 4)
    stream.cancel("enough")
    assert [type(event) for event in host.read(stream)] == [CancelledError]
    assert type(host.read(sibling)[-1]) is ExitedError
    host.world.until(lambda: not extension.generations)
    host.whole()


@pytest.mark.parametrize(("script", "starts"), [(DiesAtInitialize, False), (DiesWhenRegistered, True)])
def test_killed_at_its_start(host: Host, script: type[Provider], starts: bool) -> None:
    host.start(Other, "other")
    extension = host.world.add(script, name="ext", providers=True)
    start = extension.start()
    if starts:
        host.world.settle(start)
    else:
        with pytest.raises(ExitedError):
            host.world.settle(start)
    host.world.until(lambda: not extension.generations)
    host.whole()


@pytest.mark.parametrize("script", [DiesAtShutdown, Deaf])
def test_killed_while_it_is_being_stopped(host: Host, script: type[Provider]) -> None:
    host.start(Other, "other")
    extension = host.start(script, "ext")
    stream = host.stream("hang")
    host.world.until(lambda: stream.buffered == 4)
    stop = extension.stop()
    *_, error = host.read(stream)
    assert isinstance(error, CancelledError) and error.reason == "shutdown"
    assert host.owners("acme") == []
    host.world.settle(stop, within_ms=60_000)
    assert extension.generations == ()
    host.whole()


@pytest.mark.parametrize("script", [DiesAtInitialize, DiesWhenRegistered])
def test_a_candidate_is_killed(host: Host, script: type[Provider]) -> None:
    """Before it is negotiated nothing changes; after that it serves, and its death is that of any other."""
    host.start(Other, "other")
    extension = host.start(Provider, "ext")
    stream = host.stream("hang")
    host.world.until(lambda: stream.buffered == 4)
    host.world.replace("ext", script)
    reload = extension.reload()
    if script is DiesAtInitialize:
        with pytest.raises(ExitedError):
            host.world.settle(reload)
        assert (host.owners("acme"), stream.closed) == ([1], False)
        stream.cancel()
        host.world.settle(extension.stop())
    else:
        host.world.settle(reload)
        host.world.until(lambda: 2 not in [one.number for one in extension.generations])
        stream.cancel()
        host.world.until(lambda: not extension.generations)
    host.whole()


def test_the_old_generation_is_killed_while_it_drains(host: Host) -> None:
    host.start(Other, "other")
    extension = host.start(Provider, "ext")
    stream = host.stream("hang")
    host.world.until(lambda: stream.buffered == 4)
    host.world.settle(extension.reload())
    host.world.until(lambda: host.owners("acme") == [2])
    host.world.inject(Faults().kill("ext"), generation=1)
    assert type(host.read(stream)[-1]) is ExitedError
    host.world.until(lambda: len(extension.generations) == 1)
    assert host.owners("acme") == [2]
    assert type(host.read(host.stream("finish"))[-1]) is Finished
    host.world.settle(extension.stop())
    host.whole()


def test_a_provider_that_floods_harms_nobody_else(tmp_path: Path) -> None:
    registry = ProviderRegistry()
    with ProcessHost(tmp_path, settings=SETTINGS, services=HostServices(providers=registry)) as processes:
        host = Host(processes.open_session(tmp_path), registry)
        host.start(Other, "other")
        extension = host.start(Flood, "ext")
        stream = host.stream("hang")
        most = 0

        while not stream.closed:
            assert type(host.read(host.stream("finish", "other"))[-1]) is Finished
            most = max(most, extension.generation.connection.unread_bytes)
        assert most <= 2 * 65_536
        *events, error = host.read(stream)
        assert len(events) == 32
        assert isinstance(error, ResourceExhaustedError)
        assert type(host.read(host.stream("finish", "other"))[-1]) is Finished
        host.world.settle(extension.stop())
        host.whole()
