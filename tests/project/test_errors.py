"""What holds for every error of the tree, of whatever type it is."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import broker.errors
from broker.errors import BrokerError, Fault, McpError

Again = Callable[[BrokerError], BrokerError]


def types() -> list[type[BrokerError]]:
    found = vars(broker.errors).values()
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, BrokerError)]


def made(kind: type[BrokerError]) -> BrokerError:
    """One with a value for everything that its type requires, and some of what all of them have."""
    required = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    common: dict[str, Any] = {"limit": "MAX_X", "observed": 2, "maximum": 1, "faults": [Fault("a[0]", "wrong")]}
    return kind("what went wrong", **dict.fromkeys(required, "given"), **common)


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error)), BrokerError.copied])
@pytest.mark.parametrize("kind", types())
def test_an_error_can_be_copied_and_sent_to_another_process(kind: type[BrokerError], again: Again) -> None:
    error = made(kind)
    error.add_note("seen twice")
    other = again(error)
    assert (type(other), str(other), other is error) == (kind, "what went wrong", False)
    assert vars(other) == vars(error)
    assert (other.observed, other.faults, other.code) == (2, (Fault("a[0]", "wrong"),), error.code)


def test_a_copy_keeps_the_cause_and_may_have_a_text_of_its_own() -> None:
    error = McpError("as it was", rpc_code=1, rpc_message="no")
    error.__cause__ = OSError("deeper")
    other = error.copied("said otherwise")
    assert (str(other), str(error), other.rpc_message) == ("said otherwise", "as it was", "no")
    assert other.__cause__ is error.__cause__
