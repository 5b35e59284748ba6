"""The cattrs converter is as strict as the wire, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.errors import BrokerError, CapabilityMismatchError
from broker.testing.contract_fixtures import expand, models
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.bus_models import BusBinding, BusLifecycleParams, BusSubscribeResult
from broker.wire.octet.converter import contract_converter
from broker.wire.octet.models import Continue, Deny, Disposition, SessionHookParams, ToolCallResult
from broker.wire.octet.schema import Union
from broker.wire.octet.stream_models import Usage

HERE = Path(__file__).parent
GOLDEN: list[dict[str, Any]] = json.loads((HERE / "golden.json").read_text(encoding="utf-8"))
HOSTILE: list[dict[str, Any]] = json.loads((HERE / "hostile.json").read_text(encoding="utf-8"))
CONVERTER = contract_converter()
UNIONS: dict[str, Any] = {
    "SessionHookParams": SessionHookParams,
    "Disposition": Disposition,
    "BusSubscribeResult": BusSubscribeResult,
    "BusLifecycleParams": BusLifecycleParams,
}


def target(name: str) -> Any:
    model = models()[name]
    if isinstance(model, Union):
        return UNIONS.get(name) or next(iter(model.variants.values()))
    return model


@pytest.mark.parametrize("name", list(models()))
def test_golden_values_come_back_and_hostile_ones_are_refused(name: str) -> None:
    for row in GOLDEN:
        if row["model"] == name:
            value = expand(row["value"])
            assert CONVERTER.unstructure(CONVERTER.structure(value, target(name))) == value
    for row in HOSTILE:
        if row["model"] == name and row["bytes"] <= 4_096:
            with pytest.raises(BrokerError) as caught:
                CONVERTER.structure(expand(row["value"]), target(name))
            assert (caught.value.name, caught.value.path) == (row["error"], row["path"])


def test_a_variant_is_what_was_asked_for() -> None:
    value = {"kind": "deny", "reason": "no"}
    assert CONVERTER.structure(value, Disposition) == CONVERTER.structure(value, Deny) == Deny(reason="no")
    with pytest.raises(CapabilityMismatchError, match="is a Deny, not a Continue"):
        CONVERTER.structure(value, Continue)
    binding = BusBinding(binding_id="b", binding_revision=1)
    assert CONVERTER.unstructure(binding) == {"kind": "binding", "binding_id": "b", "binding_revision": 1}


def test_absent_and_null_stay_apart() -> None:
    value = {"content": [], "is_error": False, "metadata": None}
    assert CONVERTER.structure(value, ToolCallResult).structured_content is ABSENT
    assert CONVERTER.structure({**value, "structured_content": None}, ToolCallResult).structured_content is None
    assert CONVERTER.unstructure(Usage(output_tokens=3)) == {"output_tokens": 3}
