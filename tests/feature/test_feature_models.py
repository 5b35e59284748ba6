"""The connection beside slow models of the negotiation and of the request table."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.errors import CancelledError, NegotiationError, RemoteError
from broker.wire.feature.events import RequestReceived
from broker.wire.feature.negotiation import Declared, Offer, judge_answer
from broker.wire.octet.settings import Phase

Make = Callable[..., Any]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("feature_model", Path(__file__).with_name("feature_model.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["feature_model"] = module
    spec.loader.exec_module(module)
    return module


model = _load()
EVERY = [*model.REQUIRED, *model.COMMON, *model.LATER]
NAMES = st.sampled_from(["a", "b", "c"])
VERSIONS = st.sampled_from(["0.1", "0.2", "0.4"])


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """``good`` nine times out of ten, so that a case with several members is often right in all of them."""
    return st.integers(0, 9).flatmap(lambda n: bad if n == 0 else good)


@st.composite
def negotiations(draw: st.DrawFn) -> tuple[str, list[str], dict[str, list[str]], dict[str, Any]]:
    version = draw(VERSIONS)
    exists = model.COMMON + (model.LATER if version == "0.4" else [])
    offered = [] if version == "0.1" else draw(st.lists(st.sampled_from(exists), unique=True, max_size=12))
    declared = {key: draw(st.lists(NAMES, unique=True, max_size=3)) for key in ("tools", "commands")}
    pick = st.lists(st.sampled_from(offered), unique=True) if offered else st.just([])
    any_names = st.lists(st.sampled_from([*EVERY, "event_bus", ""]), max_size=6)
    answer: dict[str, Any] = {
        "api_version": draw(mostly(st.just(version), st.sampled_from(["0.1", "0.2", "0.3", "0.4"]))),
        "tools": [
            {"name": name, "description": "x", "parameters": {}}
            for name in draw(mostly(st.permutations(declared["tools"]), st.lists(NAMES, max_size=4)))
        ],
        "commands": draw(mostly(st.permutations(declared["commands"]), st.lists(NAMES, max_size=4))),
    }
    if draw(mostly(st.just(version != "0.1"), st.booleans())):
        required = draw(mostly(st.just(model.REQUIRED), st.lists(st.sampled_from(model.REQUIRED), max_size=3)))
        answer["protocol"] = {
            "version": draw(mostly(st.just(version), st.sampled_from(["0.2", "0.4", ""]))),
            "features": draw(st.permutations(required + draw(mostly(pick, any_names)))),
            "limits": {"max_concurrent_requests": draw(st.integers(0, 12))},
        }
    for extra in draw(mostly(st.just([]), st.lists(st.sampled_from(["contract", "shortcuts"]), unique=True))):
        answer[extra] = []
    return version, offered, declared, answer


@pytest.mark.spec("octet.legacy.features", "octet.legacy.initialize", "octet.legacy.tools-and-commands")
@settings(max_examples=400)
@given(case=negotiations())
def test_every_answer_is_judged_as_the_model_judges_it(case: Any) -> None:
    version, offered, declared, answer = case
    offer = Offer(version=version, optional_features=tuple(offered), max_concurrent_requests=8)
    try:
        found = judge_answer(
            answer,
            offer=offer,
            declared=Declared(tools=tuple(declared["tools"]), commands=tuple(declared["commands"])),
        )
        outcome: Any = (sorted(found.features), found.max_concurrent_requests)
    except NegotiationError as error:
        outcome = error.name
    assert outcome == model.judge(version, offered, 8, declared, answer)


CHILDREN = st.sampled_from(["x", "y", "z", "w", 1, "1", 0])
_CALL = st.just(("call",))
_ASK = st.tuples(st.just("ask"), CHILDREN, st.one_of(st.integers(2, 4), st.sampled_from([None, 0, 1, 5, 9])))
STEPS = st.one_of(
    _CALL,
    _CALL,
    _ASK,
    _ASK,
    _ASK,
    st.tuples(st.just("cancel"), st.integers(0, 3)),
    st.tuples(st.just("answer"), st.integers(1, 6), st.sampled_from(["result", "error"])),
    st.tuples(st.just("take_back"), CHILDREN),
    st.tuples(st.just("reply"), CHILDREN),
    st.tuples(st.just("wait"), st.sampled_from([1, 999, 1_000, 2_000])),
)


class Real:
    """The connection, told the same steps as the model."""

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.calls: list[Any] = []
        self.incoming: dict[Any, Any] = {}

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])
        for event in self.wire.events():
            if isinstance(event, RequestReceived):
                self.incoming[event.incoming.id] = event.incoming

    def call(self) -> None:
        if self.wire.connection.phase is Phase.READY:
            self.calls.append(
                self.wire.connection.request("tool/call", {}, timeout_ms=1_000_000, on_settled=self.wire.settled.append)
            )

    def cancel(self, number: int) -> None:
        if number < len(self.calls):
            self.wire.connection.cancel(self.calls[number], "user")

    def answer(self, request: int, how: str) -> None:
        body = {"result": {}} if how == "result" else {"error": {"code": 1, "message": "no"}}
        self.wire.receive({"jsonrpc": "2.0", "id": request, **body})

    def ask(self, child: Any, parent: int | None) -> None:
        params = {"prompt": "?", "secret": False}
        self.wire.ask(child, "input/request", **params, **({} if parent is None else {"parent_request_id": parent}))

    def take_back(self, child: Any) -> None:
        self.wire.tell("$/cancelRequest", id=child)

    def reply(self, child: Any) -> None:
        incoming = self.incoming.get(child)
        if incoming is not None and not incoming.answered:
            self.wire.connection.answer(incoming, {"value": None})

    def wait(self, milliseconds: int) -> None:
        self.wire.pass_ms(milliseconds)

    def lines(self) -> list[Any]:
        return [_short(line) for line in self.wire.written()]

    def ended(self) -> dict[int, str]:
        return {number: _how(call) for number, call in enumerate(self.calls) if call.settled}


def _short(line: dict[str, Any]) -> Any:
    if line.get("method") == "tool/call":
        return ("call", line["id"])
    if line.get("method") == "$/cancelRequest":
        return ("cancel", line["params"]["id"])
    if "result" in line:
        return ("result", line["id"])
    return ("refused", line["id"], line["error"]["code"])


def _how(call: Any) -> str:
    if call.error is None:
        return "result"
    if isinstance(call.error, RemoteError):
        return "error"
    return "cancelled" if isinstance(call.error, CancelledError) and call.error.reason == "user" else "closed"


@pytest.mark.spec("octet.legacy.parent", "octet.legacy.children-cancelled", "octet.legacy.child-ids")
@settings(max_examples=300)
@given(version=VERSIONS, concurrency=st.integers(1, 3), steps=st.lists(STEPS, min_size=10, max_size=40))
@example(
    version="0.2",
    concurrency=1,
    steps=[*[("call",)] * 7, ("ask", "x", 2), ("ask", "y", 2), ("answer", 2, "result")],
)
def test_every_request_ends_as_the_model_says_and_once(
    new_wire: Make, good_answer: Make, version: str, concurrency: int, steps: list[Any]
) -> None:
    answer = good_answer(version)
    if version == "0.1":
        concurrency = 1
    else:
        answer["protocol"]["limits"]["max_concurrent_requests"] = concurrency
    wire = new_wire(version).ready((), **answer)
    real, slow = Real(wire), model.Requests(version, concurrency)
    for step in steps:
        real.do(step)
        expected = getattr(slow, step[0])(*step[1:])
        assert real.lines() == expected, step
        assert real.ended() == slow.ended, step
        assert (wire.connection.phase is Phase.CLOSED) is slow.closed, step
    wire.connection.close()
    assert all(call.settled for call in real.calls)
    assert len(wire.settled) == len(real.calls) == len(set(map(id, wire.settled)))
