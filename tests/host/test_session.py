"""A session: who is in it, who watches it, and what it keeps."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from scripts import Actor, exits

from broker.errors import InvalidParamsError, ManifestError, UsageError
from broker.host import Diagnostic, Health, HostSettings
from broker.limits import MAX_DIAGNOSTICS, MAX_STDERR_LINE_BYTES

FLAGS = [
    {"name": "station", "type": "string", "default": "north"},
    {"name": "deep", "type": "boolean", "default": False},
]


def test_a_name_can_be_taken_once(memory: Any) -> None:
    first = memory.add(Actor, name="alpha")
    with pytest.raises(InvalidParamsError, match="alpha is in this session already"):
        memory.add(Actor, name="alpha")
    memory.settle(first.start())
    with pytest.raises(UsageError, match="alpha has not ended"):
        memory.session.remove("alpha")
    memory.settle(first.stop())
    memory.session.remove("alpha")
    assert dict(memory.session.extensions) == {}
    second = memory.start(Actor, name="alpha")
    assert second.instance_id != first.instance_id


@pytest.mark.parametrize("name", ["missing", "", "\x1b[31m", "x" * 5_000])
def test_an_extension_that_is_not_there_is_named_safely(memory: Any, name: str) -> None:
    with pytest.raises(InvalidParamsError, match="no extension") as caught:
        memory.session.call(name, "work", {})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 150


@pytest.mark.spec("octet.initialize.flag-values", "octet.manifest.flag-supplied")
def test_flags_reach_the_process_sorted_with_defaults(memory: Any) -> None:
    for wrong in ({"other": 1}, {"station": 5}, {"deep": "yes"}):
        with pytest.raises((InvalidParamsError, ManifestError)):
            memory.add(Actor, name="alpha", contributes={"flags": FLAGS}, flags=wrong)
    memory.start(Actor, name="alpha", contributes={"flags": FLAGS}, flags={"station": "south"})
    (params,) = memory.processes[0].params_of("initialize")
    assert params["flag_values"] == [{"name": "deep", "value": False}, {"name": "station", "value": "south"}]


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_an_observer_that_raises_stops_nothing(
    memory: Any, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fail(notice: Any) -> None:
        raise error

    seen: list[Any] = []
    memory.session.add_observer(fail)
    memory.session.add_observer(seen.append)
    extension = memory.add(Actor, name="alpha")
    with caplog.at_level(logging.ERROR, "broker.host"):
        memory.settle(extension.start())
    assert extension.health is Health.READY
    assert seen == memory.notices
    assert {record.exc_info[0] for record in caplog.records if record.exc_info} == {type(error)}


def test_an_observer_can_be_removed_also_by_itself(memory: Any) -> None:
    seen: list[Any] = []

    def once(notice: Any) -> None:
        seen.append(notice)
        remove()

    remove = memory.session.add_observer(once)
    memory.start(Actor, name="alpha")
    remove()
    assert seen == memory.notices[:1]


def test_the_newest_diagnostics_are_kept_and_the_rest_counted(memory: Any) -> None:
    extension = memory.add(Actor, name="alpha")
    memory.settle(extension.start())
    (actor,) = memory.processes
    for n in range(MAX_DIAGNOSTICS + 10):
        actor.send_stderr(f"line {n}\n".encode())
    memory.run()
    assert len(memory.session.diagnostics) == MAX_DIAGNOSTICS
    assert memory.session.diagnostics_dropped == 10
    assert memory.session.diagnostics[0] == Diagnostic("alpha", 1, "stderr", "line 10")
    assert memory.session.diagnostics[-1].text == f"line {MAX_DIAGNOSTICS + 9}"


@pytest.mark.spec("octet.process.stderr-diagnostics")
def test_stderr_becomes_safe_bounded_lines(memory: Any) -> None:
    extension = memory.start(Actor, name="alpha")
    (actor,) = memory.processes
    for data in (b"sp", b"lit\r\n\xff\xfe\x1b[31m\n", b"x" * (MAX_STDERR_LINE_BYTES * 3), b"y\nno line end"):
        actor.send_stderr(data)
    memory.settle(extension.stop())
    texts = memory.diagnostics()
    assert texts[:2] == ["split", "\ufffd\ufffd\\x1b[31m"]
    assert set(texts[2].rstrip(".")) == {"x"}
    assert len(texts[2]) <= 1_024
    assert texts[3] == "no line end"
    assert len(texts) == 4


def test_diagnostics_about_an_extension_are_bounded_and_printable(memory: Any) -> None:
    def act(actor: Actor, message: dict[str, Any]) -> None:
        for n in range(3):
            actor.request(n, "bus/subscribe", {"binding_id": "\x1b[2J" + "x" * 3_000, "topic": "bus.a.b\u202e"})
        actor.answer(message["id"], {"content": [], "is_error": False, "metadata": None})

    memory.start(lambda: Actor({"tool/call": act}, capabilities=("event_bus",)), name="alpha")
    memory.call("alpha", "work")
    assert memory.diagnostics()
    for text in memory.diagnostics():
        assert text.isprintable()
        assert len(text) <= 1_024


def test_exit_reasons_are_bounded_whatever_the_process_wrote(memory: Any) -> None:
    extension = memory.add(lambda: Actor({"initialize": exits(1, b"\x00" * 50_000)}), name="alpha")
    outcome = extension.start()
    memory.run()
    assert len(str(outcome.error)) < 20_000


@pytest.mark.parametrize(
    "wrong",
    [{"max_frame_bytes": 0}, {"max_frame_bytes": 1_048_577}, {"hook_timeout_ms": 0}, {"request_timeout_ms": 1.5},
     {"max_tools": True}, {"max_restarts": -1}, {"cancel_grace_ms": 0}, {"cancel_grace_ms": "2"}],
)  # fmt: skip
def test_settings_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=name) as caught:
        HostSettings(**wrong)
    assert caught.value.path == name


@pytest.mark.spec("octet.initialize.octet-version", "octet.initialize.offered-bound")
def test_the_offer_carries_the_hosts_own_limits(make_memory: Any) -> None:
    memory = make_memory(max_frame_bytes=5_000, max_concurrent_requests=3, max_tools=7, octet_version="0.9.1")
    memory.start(Actor, name="alpha")
    (params,) = memory.processes[0].params_of("initialize")
    assert params["contract"]["limits"] == {"max_frame_bytes": 5_000, "max_concurrent_requests": 3, "max_tools": 7}
    assert params["octet_version"] == "0.9.1"
