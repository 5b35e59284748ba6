"""Random histories of streams and of session changes: whatever happens, everything ends once and nothing is left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from service_scripts import Told, declaration

from broker.errors import BrokerError
from broker.host import Health, HostServices, HostSettings, Outcome, Principal, ProviderRegistry
from broker.testing import MemoryHost
from broker.wire.octet.stream_models import Finished

STREAM_STEPS = st.tuples(
    st.sampled_from(
        [
            *["open", "open", "accept", "accept", "say", "say", "say", "burst", "take", "take", "drain"],
            *["finish", "wrong", "refuse", "cancel", "time", "time", "update", "unregister", "register"],
            *["reload", "exit", "stop"],
        ]
    ),
    st.integers(0, 5),
)


class Reader:
    """One stream and what its reader has seen of it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.sequence = 0
        self.events: list[Any] = []
        self.ends: list[str] = []
        self.acceptance: list[bool] = []
        stream.accepted.add_callback(lambda done: self.acceptance.append(done.error is None))

    def take(self) -> bool:
        """Take one event; whether there was one."""
        try:
            event = self.stream.take()
        except BrokerError as error:
            if not self.ends:
                self.ends.append(type(error).__name__)
            return False
        if event is None:
            return False
        assert not self.ends, "an event after the end"
        self.events.append(event)
        if isinstance(event, Finished):
            self.ends.append("finished")
        return True


@pytest.mark.spec("octet.provider.stream-cancel", "octet.provider.stream-terminal")
@example(steps=[("open", 0), ("accept", 0), ("finish", 0), ("cancel", 0)])
@given(steps=st.lists(STREAM_STEPS, max_size=40))
@settings(max_examples=120, deadline=None)
def test_streams_end_once_whatever_happens(steps: list[tuple[str, int]]) -> None:
    registry = ProviderRegistry()
    limits = HostSettings(restart=False, stream_idle_ms=2_000, stream_total_ms=10_000)
    host = MemoryHost(patience_ms=0, settings=limits, services=HostServices(providers=registry))
    world = host.open_session()
    extension = world.start(
        lambda: Told(capabilities=("provider_catalog", "provider_stream")), name="ext", providers=True
    )
    readers: list[Reader] = []
    ids = iter(range(10_000))
    stopped = False

    def ask(method: str, params: dict[str, Any]) -> None:
        world.processes[-1].request(next(ids), method, params)

    def far_of(stream: Any) -> Told:
        return world.processes[int(stream.id.split("-")[1]) - 1]

    def answer(reader: Reader, **result: Any) -> None:
        far = far_of(reader.stream)
        for message in far.received:
            if message.get("method") == "provider/stream" and message["params"]["stream_id"] == reader.stream.id:
                far.answer(message["id"], {"stream_id": reader.stream.id, **result})

    def say(reader: Reader, kind: str, payload: Any, skip: int = 0) -> None:
        params = {
            "stream_id": reader.stream.id,
            "sequence": reader.sequence + skip,
            "kind": kind,
            "payload": payload,
        }
        reader.sequence += 1
        far_of(reader.stream).send({"jsonrpc": "2.0", "method": "provider/event", "params": params})

    ask("providers/register", declaration())
    world.run()
    for step, number in steps:
        reader = readers[number % len(readers)] if readers else None
        if step == "open":
            try:
                readers.append(Reader(world.session.stream("acme", "small", {"n": number})))
            except BrokerError:
                pass
        elif step in ("register", "update"):
            ask(f"providers/{step}", declaration())
        elif step == "unregister":
            ask("providers/unregister", {"provider_id": "acme"})
        elif step == "time":
            world.advance([1, 249, 1_000, 1_999, 2_500, 6_000][number])
        elif step == "reload" and extension.health is Health.READY and len(extension.generations) == 1:
            extension.reload()
        elif step == "exit" and number == 0:
            world.processes[-1].exit(-9)
        elif step == "stop" and number == 0 and not stopped:
            stopped = True
            extension.stop()
        elif reader is not None:
            if step == "accept":
                answer(reader, accepted=True)
            elif step == "refuse":
                answer(reader, accepted=False)
            elif step == "say":
                say(reader, "text_delta", {"index": 0, "delta": "x"})
            elif step == "burst":
                for _ in range(20):
                    say(reader, "text_delta", {"index": 0, "delta": "x"})
            elif step == "wrong":
                say(reader, "text_delta", {"index": 0}, skip=number % 2)
            elif step == "finish":
                say(reader, "finished", {"stop_reason": "stop"})
            elif step == "take":
                reader.take()
            elif step == "drain":
                while reader.take():
                    pass
            elif step == "cancel":
                reader.stream.cancel("enough")
        world.run()
        for reader in readers:
            assert reader.stream.buffered <= 32
    host.close()
    for reader in readers:
        while reader.take():
            pass
        assert (len(reader.ends), len(reader.acceptance), reader.stream.ended) == (1, 1, True)
        told = [
            message
            for message in far_of(reader.stream).received
            if message.get("method") == "provider/cancel" and message["params"]["stream_id"] == reader.stream.id
        ]
        assert len(told) <= 1
    assert registry.providers == ()


SESSION_STEPS = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "cancel", "begin", "end", "settle", "fail", "away", "back", "exit", "stop"]),
    st.integers(0, 7),
)


class Driver:
    """Makes each change when it is told to."""

    def __init__(self) -> None:
        self.open: list[Outcome[str]] = []
        self.begun = 0
        self.busy = False

    def create(self, asked_by: Principal) -> Outcome[str]:
        assert not self.busy, "a change was made in the middle of a turn"
        self.begun += 1
        self.open.append(Outcome())
        return self.open[-1]

    fork = reload = create

    def switch(self, asked_by: Principal, session_id: str) -> Outcome[str]:
        return self.create(asked_by)


@pytest.mark.spec("octet.session.idle-boundary", "octet.session.cancelled")
@given(steps=st.lists(SESSION_STEPS, max_size=60))
@settings(max_examples=120, deadline=None)
def test_session_changes_are_answered_once_whatever_happens(steps: list[tuple[str, int]]) -> None:
    driver = Driver()
    host = MemoryHost(patience_ms=0, settings=HostSettings(restart=False), services=HostServices(session_driver=driver))
    world = host.open_session()
    fars = {name: Told(capabilities=("session_lifecycle",)) for name in ("one", "two")}
    extensions = {name: world.start(far, name=name) for name, far in fars.items()}
    control = world.session.control
    asked: list[tuple[str, int]] = []
    turns = 0
    for step, number in steps:
        name = ("one", "two")[number % 2]
        if step == "ask" and extensions[name].health is Health.READY:
            asked.append((name, len(asked)))
            method = ("create", "fork", "reload")[number % 3]
            fars[name].request(len(asked) - 1, f"session/{method}", {})
        elif step == "cancel" and asked:
            name, request_id = asked[number % len(asked)]
            params = {"id": request_id}
            fars[name].send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": params})
        elif step == "begin" and not any(not one.done for one in driver.open):
            turns += 1
            control.begin_turn()
        elif step == "end" and turns:
            turns -= 1
            driver.busy = turns > 0
            control.end_turn()
        elif step in ("settle", "fail") and driver.open:
            outcome = driver.open[number % len(driver.open)]
            if step == "settle":
                outcome.succeed("made")
            else:
                outcome.settle_with(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        elif step == "away":
            control.deactivate()
        elif step == "back":
            control.activate(driver)
        elif step == "exit" and number < 2:
            fars[name].exit(-9)
        elif step == "stop" and number < 2:
            extensions[name].stop()
        driver.busy = turns > 0
        world.run()
        assert control.waiting <= 16
    while turns:
        turns -= 1
        driver.busy = turns > 0
        control.end_turn()
    for _ in range(40):
        for outcome in driver.open:
            outcome.succeed("made")
        world.run()
    for name, request_id in asked:
        answers = [m for m in fars[name].received if m.get("id") == request_id and "method" not in m]
        alive = extensions[name].health is Health.READY
        assert len(answers) <= 1
        assert not alive or len(answers) == 1
    host.close()
