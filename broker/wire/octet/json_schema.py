"""JSON Schema (2020-12) of every wire model of the octet 0.3 contract, made from the records themselves.

What a schema cannot say is left to ``x-max-bytes``: the bound on the UTF-8 bytes of a string, or on the canonical size
of a value. ``maxLength`` beside it counts characters, which are never more than the bytes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import singledispatch
from typing import Any, Final

from broker.limits import LIMITS, MAX_JSON_RPC_ID_BYTES, MAX_PORTABLE_INTEGER
from broker.wire.octet.migration_models import ROOT_SIGN, SourcePath
from broker.wire.octet.model_table import MODELS, STREAM_PAYLOADS, Model
from broker.wire.octet.models import SCHEMA
from broker.wire.octet.schema import (
    Boolean,
    Integer,
    Items,
    Json,
    Nested,
    RpcId,
    Text,
    Union,
    WireType,
    members,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_LABEL: Final = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$"
_PART: Final = (
    r"(?!\.\.?(?:/|$))[^/\\\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]+"
)
_PATH: Final = f"{_PART}(?:/{_PART})*"


def contract_schema() -> dict[str, Any]:
    """One document with a definition for each model, and for each payload of a provider stream's events."""
    return {
        "$schema": DIALECT,
        "$id": SCHEMA,
        "title": "octet extension API 0.3, canonical wire models",
        "$defs": {name: definition(name, model) for name, model in _named().items()},
    }


def definition(name: str, model: Model) -> dict[str, Any]:
    """The schema of one model."""
    if isinstance(model, Union):
        return {
            "title": name,
            "oneOf": [_object(variant, model.tag, tag) for tag, variant in model.variants.items()],
        }
    return {"title": name, "description": summary(model), **_object(model)}


def _named() -> Mapping[str, Model]:
    return {**MODELS, **STREAM_PAYLOADS}


def _object(model: type, tag: str | None = None, word: str | None = None) -> dict[str, Any]:
    properties: dict[str, Any] = {} if tag is None else {tag: {"const": word}}
    required = [] if tag is None else [tag]
    for member in members(model):
        shape = _shape(member.kind)
        if isinstance(member.kind, Json):
            if not member.nullable and not member.kind.only_object:
                shape = {"not": {"type": "null"}, **shape}
        elif member.nullable:
            shape = {"anyOf": [shape, {"type": "null"}]}
        properties[member.name] = shape
        if member.required:
            required.append(member.name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@singledispatch
def _shape(kind: WireType) -> dict[str, Any]:
    raise TypeError(f"{type(kind).__name__} has no JSON Schema")


@_shape.register
def _(kind: Text) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "string"}
    if kind.choices:
        return {**shape, "enum": list(kind.choices)}
    if kind.limit is not None:
        shape.update(_bytes(kind.limit, characters=True))
    if not kind.empty:
        shape["minLength"] = 1
    if kind.pattern is not None:
        shape["pattern"] = f"^(?:{kind.pattern})$"
    elif kind.label:
        shape["pattern"] = _LABEL
    return shape


@_shape.register
def _(kind: Integer) -> dict[str, Any]:
    return {"type": "integer", "minimum": kind.minimum, "maximum": kind.maximum}


@_shape.register
def _(kind: Boolean) -> dict[str, Any]:
    return {"type": "boolean"}


@_shape.register
def _(kind: RpcId) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1, "maxLength": MAX_JSON_RPC_ID_BYTES, "x-max-bytes": MAX_JSON_RPC_ID_BYTES}
    return {"anyOf": [text, {"type": "integer", "minimum": 0, "maximum": MAX_PORTABLE_INTEGER}]}


@_shape.register
def _(kind: Json) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "object"} if kind.only_object else {}
    if kind.max_bytes is not None:
        shape.update(_bytes(kind.max_bytes))
    return shape


@_shape.register
def _(kind: Items) -> dict[str, Any]:
    shape = {"type": "array", "items": _shape(kind.of)}
    return shape if kind.limit is None else {**shape, "maxItems": LIMITS[kind.limit].value}


@_shape.register
def _(kind: Nested) -> dict[str, Any]:
    return _reference(kind.model)


@_shape.register
def _(kind: Union) -> dict[str, Any]:
    return _reference(kind)


@_shape.register
def _(kind: SourcePath) -> dict[str, Any]:
    root = f"{_escaped(ROOT_SIGN)}|" if kind.root_sign else ""
    return {"type": "string", "pattern": f"^(?:{root}{_PATH})$", **_bytes("MAX_MIGRATION_PATH_BYTES", characters=True)}


def _escaped(sign: str) -> str:
    # JSON Schema patterns follow ECMA-262, where this is the way to say a sign that means something else.
    return f"\\{sign}"


def _reference(model: Model) -> dict[str, Any]:
    for name, other in _named().items():
        if other is model:
            return {"$ref": f"#/$defs/{name}"}
    # A part of a union's variant, which has no name of its own in the reference.
    assert isinstance(model, type)
    return _object(model)


def _bytes(limit: str, *, characters: bool = False) -> dict[str, Any]:
    value = LIMITS[limit].value
    return {"maxLength": value, "x-max-bytes": value} if characters else {"x-max-bytes": value}


def summary(model: type) -> str:
    """The first paragraph of the record's own description, as plain text."""
    paragraph = (inspect.getdoc(model) or "").split("\n\n")[0].replace("``", "")
    return " ".join(re.sub(r":[a-z]+:`~?([^`]*)`", r"\1", paragraph).split())
