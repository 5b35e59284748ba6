"""The generated fixtures are current, and the checker, the JSON Schema and the fixtures say the same of every value."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from broker import canonical
from broker.errors import BrokerError, ProtocolError
from broker.testing.contract_fixtures import FAULTS, expand, models
from broker.wire.jsonrpc import Failure, Notification, Request, Success, classify
from broker.wire.octet.bus_models import BusFieldSpec
from broker.wire.octet.json_schema import contract_schema
from broker.wire.octet.provider_models import ProviderDefinition, declaration_faults
from broker.wire.octet.schema import Union, check, decode, decode_union, encode

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GOLDEN: list[dict[str, Any]] = json.loads((HERE / "golden.json").read_text(encoding="utf-8"))
HOSTILE: list[dict[str, Any]] = json.loads((HERE / "hostile.json").read_text(encoding="utf-8"))
NAMES = list(models())
SCHEMA = contract_schema()


def of(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["model"] == name]


def test_nothing_generated_differs_from_what_the_generator_makes() -> None:
    spec = importlib.util.spec_from_file_location("broker_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.differing(ROOT) == []


def test_a_file_that_differs_or_is_missing_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("broker_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.differing(tmp_path) == list(module.artifacts())
    module.ROOT = tmp_path
    assert module.main(["--check"]) == 1
    assert list(tmp_path.rglob("*")) == []
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0
    edited = tmp_path / "docs/contract/octet-0.3.d.ts"
    edited.write_text(edited.read_text() + "// mine\n")
    capsys.readouterr()
    assert module.main(["--check"]) == 1
    assert "docs/contract/octet-0.3.d.ts is not what docs/generate.py makes" in capsys.readouterr().err


def test_every_model_has_fixtures_and_every_fault_occurs() -> None:
    assert len(NAMES) == 64 + 12
    assert {row["model"] for row in GOLDEN} == {row["model"] for row in HOSTILE} == set(NAMES)
    counts = Counter(row["fault"] for row in HOSTILE)
    assert set(counts) == set(FAULTS)
    assert min(counts.values()) >= 7


@pytest.mark.parametrize("name", NAMES)
def test_golden_values_are_right_to_the_byte_and_come_back_as_they_were(name: str) -> None:
    model = models()[name]
    for row in of(GOLDEN, name):
        value = expand(row["value"])
        data = canonical.encode(value)
        assert (len(data), hashlib.sha256(data).hexdigest()) == (row["bytes"], row["sha256"]), row["case"]
        assert data == row.get("canonical", data.decode()).encode()
        assert canonical.decode(data) == value
        if isinstance(model, Union):
            assert model.encode(decode_union(model, value, what=name)) == value
        else:
            assert encode(decode(model, value)) == value


@pytest.mark.parametrize("name", NAMES)
def test_hostile_values_have_the_one_fault_they_are_said_to_have(name: str) -> None:
    model = models()[name]
    for row in of(HOSTILE, name):
        value = expand(row["value"])
        data = canonical.encode(value)
        assert (len(data), hashlib.sha256(data).hexdigest()) == (row["bytes"], row["sha256"])
        (fault,) = check(model, value)
        assert (fault.path, fault.name) == (row["path"], row["error"]), row
        read = partial(decode_union, model, what=name) if isinstance(model, Union) else partial(decode, model)
        with pytest.raises(BrokerError) as caught:
            read(value)
        assert (caught.value.name, caught.value.path) == (row["error"], row["path"])


@pytest.mark.parametrize("name", NAMES)
def test_the_json_schema_says_the_same(name: str) -> None:
    """But for byte bounds, which JSON Schema has no word for; those are named by ``x-max-bytes``."""
    validator = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})
    for row in of(GOLDEN, name):
        assert not list(validator.iter_errors(expand(row["value"]))), row["case"]
    for row in of(HOSTILE, name):
        if row["fault"] != "bytes":
            assert list(validator.iter_errors(expand(row["value"]))), row


ENVELOPES = {
    "JsonRpcRequest": Request,
    "JsonRpcNotification": Notification,
    "JsonRpcSuccessResponse": Success,
    "JsonRpcErrorResponse": Failure,
}


@pytest.mark.spec(
    "octet.model.json-rpc-request",
    "octet.model.json-rpc-notification",
    "octet.model.json-rpc-success-response",
    "octet.model.json-rpc-error-response",
)
@pytest.mark.parametrize("name", ENVELOPES)
def test_envelopes_are_judged_by_the_wire_as_their_records_are(name: str) -> None:
    """A request without its id is a notification; any other hostile envelope is none at all."""
    for row in of(GOLDEN, name):
        assert type(classify(expand(row["value"]))) is ENVELOPES[name]
    for row in of(HOSTILE, name):
        if (name, row["fault"], row["path"]) == ("JsonRpcRequest", "missing", "id"):
            assert type(classify(row["value"])) is Notification
            continue
        with pytest.raises(ProtocolError):
            classify(expand(row["value"]))


def test_golden_providers_are_right_as_a_whole() -> None:
    for row in of(GOLDEN, "ProviderDefinition"):
        assert declaration_faults(decode(ProviderDefinition, expand(row["value"])), ()) == []


def test_the_json_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(SCHEMA["$defs"]) == NAMES


def test_a_recipe_is_carried_out() -> None:
    assert expand({"a": [{"$repeat": "xy", "times": 2}, 1]}) == {"a": ["xyxy", 1]}
    assert expand({"$items": {"b": {"$repeat": "x", "times": 3}}, "times": 2}) == [{"b": "xxx"}, {"b": "xxx"}]
    assert check(BusFieldSpec, expand(of(GOLDEN, "BusFieldSpec")[0]["value"])) == []
