"""The negotiation and the request table against a slow model of them, over random answers and random histories."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from negotiation_model import CAPABILITIES, DEFERRED_METHODS, HOME, MAXIMA, OPTIONAL, REQUIRED, Requests, judge

from broker.errors import NegotiationError
from broker.wire.jsonrpc import failure
from broker.wire.octet.contract import CAPABILITIES as REAL_CAPABILITIES
from broker.wire.octet.contract import METHODS, build_offer
from broker.wire.octet.models import ProtocolLimits
from broker.wire.octet.negotiation import Expectation, check_selection

NewWire = Callable[..., Any]
NAMES = sorted({*CAPABILITIES, *HOME, "telepathy", "", "x" * 65, "x" * 129, "é" * 33})
# What a change of an answer does: to a list of names, to the limits, to the literals, or to the tools.
OFTEN_LEFT_OUT = ["bus/event", "bus/lifecycle", "provider/event", "hook/run"]
CHANGES = st.one_of(
    st.tuples(st.just("methods"), st.just("remove"), st.sampled_from(OFTEN_LEFT_OUT)),
    st.tuples(
        st.sampled_from(["capabilities", "methods"]),
        st.sampled_from(["add", "add", "remove", "repeat", "flood"]),
        st.sampled_from(NAMES),
    ),
    st.tuples(
        st.just("limits"), st.sampled_from(sorted(MAXIMA)), st.sampled_from([0, 1, 3, 4, 5, 256, 257, 1_048_577])
    ),
    st.tuples(st.just("literal"), st.sampled_from(["api_version", "schema", "encoding"]), st.just("other")),
    st.tuples(st.just("tools"), st.sampled_from(["add", "remove", "repeat"]), st.sampled_from(["tide", "ebb"])),
)


def right_answer(chosen: set[str], tools: list[str]) -> dict[str, Any]:
    """An answer that selects every method of ``chosen``."""
    return {
        "api_version": "0.3",
        "tools": [{"name": name, "description": "d", "parameters": {}} for name in tools],
        "contract": {
            "schema": "octet.extension.api/0.3",
            "encoding": "octet-canonical-json-v1",
            "capabilities": [*REQUIRED, *sorted(chosen)],
            "methods": [m for name in (*REQUIRED, *sorted(chosen)) for m in {**REQUIRED, **OPTIONAL}[name]],
            "limits": {"max_frame_bytes": 65_536, "max_concurrent_requests": 4, "max_tools": 4},
        },
    }


def change(answer: dict[str, Any], what: tuple[str, str, Any]) -> None:
    where, how, value = what
    contract = answer["contract"]
    if where == "limits":
        contract["limits"][how] = value
    elif where == "literal":
        (answer if how == "api_version" else contract)[how] = value
    elif where == "tools":
        tool = {"name": value, "description": "d", "parameters": {}}
        if how == "remove":
            answer["tools"] = [one for one in answer["tools"] if one["name"] != value]
        else:
            answer["tools"] += [tool] * (2 if how == "repeat" else 1)
    elif how == "remove":
        contract[where] = [name for name in contract[where] if name != value]
    elif how == "flood":
        contract[where] += [f"n{number}" for number in range(70)]
    else:
        contract[where] += [value] * (2 if how == "repeat" else 1)


def test_the_model_has_the_tables_of_the_reference() -> None:
    assert set(REAL_CAPABILITIES) == CAPABILITIES
    assert {name: row.capability for name, row in METHODS.items()} == HOME
    assert {name for name, row in METHODS.items() if row.status.value == "deferred"} == set(DEFERRED_METHODS)


@pytest.mark.spec("octet.selection.first-fault", "octet.selection.nothing-visible")
@given(
    offered=st.one_of(st.just(set(OPTIONAL)), st.sets(st.sampled_from(sorted(OPTIONAL)))),
    chosen=st.sets(st.sampled_from(sorted(OPTIONAL))),
    declares=st.tuples(st.booleans(), st.sets(st.sampled_from(["tide", "ebb"]))),
    concurrency=st.sampled_from([3, 4, 64]),
    changes=st.lists(CHANGES, max_size=3),
)
@settings(max_examples=400, deadline=None)
def test_every_answer_is_judged_as_the_model_judges_it(
    offered: set[str],
    chosen: set[str],
    declares: tuple[bool, set[str]],
    concurrency: int,
    changes: list[tuple[str, str, Any]],
) -> None:
    hooks, tools = declares
    answer = right_answer(chosen & offered if len(changes) < 3 else chosen, sorted(tools))
    for one in changes:
        change(answer, one)
    limits = {"max_frame_bytes": 1_048_576, "max_concurrent_requests": concurrency, "max_tools": 256}
    expected = judge(copy.deepcopy(answer), offered, limits, tools, hooks)
    offer = build_offer(offered, limits=ProtocolLimits(**limits))
    expectation = Expectation(tools=tuple(sorted(tools)), session_hooks=hooks)
    try:
        selection = check_selection(answer, offer=offer, expectation=expectation)
    except NegotiationError as error:
        assert error.name == expected
    else:
        assert expected is None
        assert selection.capabilities == set(answer["contract"]["capabilities"])
        assert selection.methods == set(answer["contract"]["methods"])


STEPS = st.one_of(
    st.tuples(st.just("make"), st.booleans(), st.sampled_from([5, 20, 100])),
    st.tuples(st.just("write"), st.none(), st.none()),
    st.tuples(st.just("cancel"), st.integers(0, 12), st.none()),
    st.tuples(st.just("answer"), st.integers(1, 14), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([1, 4, 5, 19, 50]), st.none()),
)


@pytest.mark.spec("octet.cancel.every-request-ends-once", "octet.tool-call.concurrency", "octet.tool-call.wait-counts")
@given(steps=st.lists(STEPS, max_size=40))
@settings(max_examples=200, deadline=None)
def test_the_request_table_does_what_the_model_does(new_wire: NewWire, steps: list[tuple[str, Any, Any]]) -> None:
    wire = new_wire(cancel_grace_ms=30).ready(hooks=True)
    model = Requests(slots=2, grace=30)
    real: list[Any] = []
    hook = {"hook": "session_start", "payload": {}}
    notices: list[int] = []

    def written() -> list[int]:
        """The ids of the requests that leave now; the cancel notices among them are kept apart."""
        from broker import canonical

        ids = []
        for frame in wire.written():
            message = canonical.decode(frame[:-1])
            if message["method"] == "$/cancelRequest":
                notices.append(message["params"]["id"])
            else:
                ids.append(message["id"])
        return ids

    for what, first, second in steps:
        if model.dead:
            break
        if what == "make":
            model.make(first, second)
            if first:
                request = wire.connection.request("hook/run", hook, timeout_ms=second, bypass_slots=True)
            else:
                request = wire.call(timeout_ms=second)
            real.append(request)
        elif what == "write":
            leaving: list[int] = []
            while more := model.write():
                leaving += more
                model.admit()
            assert sorted(written()) == sorted(leaving)
        elif what == "cancel" and first < len(real):
            model.cancel(first)
            wire.connection.cancel(real[first], "user")
        elif what == "answer":
            model.answer(first, second)
            result = {"jsonrpc": "2.0", "id": first, "result": {}}
            wire.receive(failure(first, "internal_error") if second else result)
            wire.events()
        elif what == "time":
            for _ in range(first):
                model.pass_time(1)
                wire.pass_ms(1)
            wire.events()
        outcomes = [
            None if not one.settled else "result" if one.error is None else type(one.error).__name__ for one in real
        ]
        assert outcomes == [call.outcome for call in model.calls]
        assert wire.connection.outbound.requests.slots_used == (0 if model.dead else model.used())
        assert (wire.connection.failure is not None) == model.dead
    if not model.dead:
        written()
        assert sorted(notices) == sorted(
            call.id for call in model.calls if call.id in model.notices and call.id is not None
        )
