"""The host for programs without a loop: used from many threads, cancelled, closed twice, used wrongly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from broker import Field
from broker.adapters.blocking import BlockingHost
from broker.errors import (
    BrokerError,
    CancelledError,
    ExitedError,
    InvalidParamsError,
    SetupError,
    TimedOutError,
    UsageError,
)
from broker.host import HostSettings, Started

BOUND_SECONDS = 50.0
SLOW = """
def call(m):
    how = m['params']['arguments'].get('how')
    if how == 'never': return
    reply(m, how or '')
def other(m):
    send(id=m['params']['id'], error={'code': -32800, 'message': 'request cancelled'})
start(); serve(call, other)
"""


@pytest.fixture
def host() -> Iterator[BlockingHost]:
    with BlockingHost(settings=HostSettings(restart=False)) as made:
        yield made


def until(condition: Any) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def test_calls_from_many_threads(host: BlockingHost, rogue: Any, tmp_path: Path) -> None:
    session = host.open_session(tmp_path)
    extension = session.start(rogue())
    assert [tool.name for tool in extension.tools] == ["work"]

    def work(n: int) -> str:
        return session.call("rogue", "work", {"text": str(n)}, timeout=BOUND_SECONDS).content[0].text

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(200))) == [str(n) for n in range(200)]


def test_many_calls_on_their_way_at_once(host: BlockingHost, rogue: Any, tmp_path: Path) -> None:
    session = host.open_session(tmp_path)
    session.start(rogue())
    pending = [session.submit("rogue", "work", {"text": str(n)}) for n in range(100)]
    assert [call.result(BOUND_SECONDS).content[0].text for call in pending] == [str(n) for n in range(100)]
    assert all(call.done for call in pending)


def test_a_call_can_be_cancelled_and_waited_for_in_slices(host: BlockingHost, rogue: Any, tmp_path: Path) -> None:
    session = host.open_session(tmp_path)
    session.start(rogue(SLOW))
    call = session.submit("rogue", "work", {"how": "never"})
    with pytest.raises(TimeoutError):
        call.result(0.01)
    assert not call.done
    call.cancel()
    call.cancel()
    with pytest.raises(CancelledError) as caught:
        call.result(BOUND_SECONDS)
    assert caught.value.reason == "user"
    with pytest.raises(TimedOutError):
        session.call("rogue", "work", {"how": "never"}, timeout=0.05)
    assert session.call("rogue", "work", {"how": "after"}).content[0].text == "after"


def test_errors_are_those_of_the_host(host: BlockingHost, rogue: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not a directory"):
        host.open_session(tmp_path / "missing")
    session = host.open_session(tmp_path)
    with pytest.raises(SetupError):
        session.start(tmp_path / "missing")
    with pytest.raises(ExitedError) as caught:
        session.start(rogue("sys.exit(9)", name="bad"))
    assert caught.value.status == 9
    session.start(rogue())
    with pytest.raises(InvalidParamsError, match="already"):
        session.start(rogue())
    with pytest.raises(InvalidParamsError, match="has no tool"):
        session.call("rogue", "other")
    with pytest.raises(InvalidParamsError, match="no extension"):
        session.call("other", "work")
    session.stop("rogue")
    session.start(rogue())


def test_its_own_thread_cannot_wait_for_itself(host: BlockingHost, rogue: Any, tmp_path: Path) -> None:
    session = host.open_session(tmp_path)
    problems: list[str] = []

    def watch(notice: Any) -> None:
        if isinstance(notice, Started):
            for attempt in (lambda: session.call("rogue", "work"), session.close, host.close):
                try:
                    attempt()
                except UsageError as error:
                    problems.append(str(error))

    session.add_observer(watch)
    session.start(rogue())
    assert problems == ["a handler or observer runs in the host's own thread and cannot wait for it"] * 3
    assert session.call("rogue", "work", {"text": "still"}).content[0].text == "still"


def test_an_observer_can_be_taken_away(host: BlockingHost, rogue: Any, tmp_path: Path) -> None:
    session = host.open_session(tmp_path)
    first: list[Any] = []
    second: list[Any] = []
    remove = session.add_observer(first.append)
    session.add_observer(second.append)
    remove()
    session.start(rogue())
    assert any(isinstance(notice, Started) for notice in second)
    assert first == []


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_an_observer_that_would_end_the_thread_stops_nothing(
    host: BlockingHost, rogue: Any, tmp_path: Path, error: BaseException
) -> None:
    def fail(notice: Any) -> None:
        raise error

    session = host.open_session(tmp_path)
    session.add_observer(fail)
    session.start(rogue())
    call = session.submit("rogue", "work", {"text": "still there"})
    assert call.result(BOUND_SECONDS).content[0].text == "still there"


def test_an_interrupt_out_of_a_handler_does_not_end_the_hosts_thread(
    host: BlockingHost, rogue: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = host.open_session(tmp_path)
    session.start(rogue())
    alpha = session.attach("alpha")
    alpha.declare("bus.alpha.count", [])
    alpha.subscribe("bus.alpha.count")
    raised = threading.Event()

    def stop(message: Any) -> None:
        raised.set()
        raise KeyboardInterrupt

    alpha.deliver_to(stop)
    alpha.publish("bus.alpha.count", {})
    assert raised.wait(BOUND_SECONDS)
    call = session.submit("rogue", "work", {"text": "still there"})
    assert call.result(BOUND_SECONDS).content[0].text == "still there"
    assert "the host's own code tried to end the thread of its loop" in caplog.messages


def test_handlers_run_in_the_hosts_thread(host: BlockingHost, tmp_path: Path) -> None:
    session = host.open_session(tmp_path)
    alpha, beta = session.attach("alpha"), session.attach("beta")
    alpha.declare("bus.alpha.count", [Field.integer("n")])
    beta.subscribe("bus.alpha.count")
    seen: list[tuple[int, str]] = []
    beta.deliver_to(lambda message: seen.append((message.payload["n"], threading.current_thread().name)))
    for n in range(3):
        alpha.publish("bus.alpha.count", {"n": n})
    until(lambda: len(seen) == 3)
    assert seen == [(n, "broker-loop") for n in range(3)]


def test_publishing_from_many_threads_loses_nothing(host: BlockingHost, tmp_path: Path) -> None:
    """At most 8 are on their way at once, so nobody is refused; every one is delivered, each publisher's in order."""
    session = host.open_session(tmp_path)
    reader = session.attach("reader")
    writers = [session.attach(f"w{n}") for n in range(4)]
    seen: list[tuple[str, int]] = []
    for writer in writers:
        writer.declare(f"bus.{writer.name}.count", [Field.integer("n")])
        reader.subscribe(f"bus.{writer.name}.count")
    reader.deliver_to(lambda message: seen.append((message.publisher, message.sequence)))
    room = threading.Semaphore(8)
    reader.deliver_to(lambda _: room.release())

    def work(writer: Any) -> None:
        for n in range(100):
            room.acquire()
            writer.publish(f"bus.{writer.name}.count", {"n": n})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, writers))
    until(lambda: len(seen) == 400)
    for writer in writers:
        assert [sequence for name, sequence in seen if name == writer.name] == list(range(1, 101))


def test_closing_twice_and_using_after(rogue: Any, tmp_path: Path, gone: Any) -> None:
    host = BlockingHost()
    session = host.open_session(tmp_path)
    session.start(rogue("start(); serve(lambda m: reply(m, str(os.getpid())))"))
    pid = int(session.call("rogue", "work").content[0].text)
    session.close()
    session.close()
    with pytest.raises(BrokerError):
        session.call("rogue", "work")
    host.close()
    host.close()
    session.close()
    gone(pid)
    for attempt in (
        lambda: host.open_session(tmp_path),
        lambda: session.call("rogue", "work"),
        lambda: session.start(tmp_path),
        lambda: session.stop("rogue"),
        lambda: session.add_observer(print),
    ):
        with pytest.raises(UsageError, match="the host is closed"):
            attempt()
    assert not [thread for thread in threading.enumerate() if thread.name == "broker-loop"]


def test_closing_from_many_threads_while_others_call(rogue: Any, tmp_path: Path) -> None:
    """Every call ends, with an answer or with an error; none waits for ever."""
    host = BlockingHost()
    session = host.open_session(tmp_path)
    session.start(rogue())
    ends: list[str] = []
    ready = threading.Barrier(6)

    def call() -> None:
        ready.wait()
        for _ in range(500):
            try:
                session.call("rogue", "work", {"text": "x"})
            except BrokerError as error:
                ends.append(type(error).__name__)
                return

    def close() -> None:
        ready.wait()
        time.sleep(0.02)
        host.close()

    threads = [threading.Thread(target=call) for _ in range(4)] + [threading.Thread(target=close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert len(ends) == 4
    assert set(ends) <= {"CancelledError", "UsageError", "ExtensionError", "CapabilityMismatchError", "ExitedError"}


def test_an_exception_in_the_block_closes_everything(rogue: Any, tmp_path: Path, gone: Any) -> None:
    pids: list[int] = []

    def use() -> None:
        with BlockingHost() as host, host.open_session(tmp_path) as session:
            session.start(rogue("start(); serve(lambda m: reply(m, str(os.getpid())))"))
            pids.append(int(session.call("rogue", "work").content[0].text))
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        use()
    gone(*pids)


@pytest.mark.spec("octet.process.reload-candidate")
def test_a_reload(host: BlockingHost, rogue: Any, tmp_path: Path) -> None:
    session = host.open_session(tmp_path)
    session.start(rogue("start(); serve(lambda m: reply(m, str(os.getpid())))"))
    before = session.call("rogue", "work").content[0].text
    assert session.reload("rogue").generation is not None
    assert session.call("rogue", "work").content[0].text != before
