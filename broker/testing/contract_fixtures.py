"""Golden and hostile values of every octet 0.3 wire model, for tests of hosts and of extensions in any language.

A *golden* value is right, with its canonical bytes; a *hostile* one has exactly one fault, and says which row of the
error table it is. All of them are made from the records' own description. Large values can be written down as recipes,
see :func:`expand`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import frozen

from broker import canonical
from broker.limits import LIMITS, MAX_JSON_RPC_ID_BYTES, MAX_PORTABLE_INTEGER
from broker.wire.octet.migration_models import SourcePath
from broker.wire.octet.model_table import MODELS, STREAM_PAYLOADS, Model
from broker.wire.octet.schema import (
    Boolean,
    Integer,
    Items,
    Json,
    Member,
    Nested,
    RpcId,
    Text,
    Union,
    WireType,
    check,
    members,
)

FAULTS: Final = ("missing", "null", "unknown", "type", "bytes", "items", "enum", "variant", "value")
"""What can be wrong: ``value`` is a pattern, a range or emptiness, the others are what they say."""

REPEAT: Final = "$repeat"
ITEMS: Final = "$items"

Variant: TypeAlias = tuple[str | None, str | None, type]


@frozen
class Golden:
    """A value of ``model`` that is right; ``case`` says what is special about it."""

    model: str
    case: str
    value: Any

    @property
    def canonical(self) -> bytes:
        """Its canonical bytes."""
        return canonical.encode(expand(self.value))

    @property
    def sha256(self) -> str:
        """The digest of its canonical bytes, in hexadecimal."""
        return hashlib.sha256(self.canonical).hexdigest()


@frozen
class Hostile:
    """A value of ``model`` with the one fault ``fault`` at ``path``, which is the row ``error`` of the error table."""

    model: str
    fault: str
    path: str
    error: str
    value: Any


def models() -> Mapping[str, Model]:
    """Everything there are fixtures of: the models of the reference, and the payloads of stream events."""
    return {**MODELS, **STREAM_PAYLOADS}


def golden_values() -> Iterator[Golden]:
    """All golden values, model by model: with every member, with the required ones alone, and at each bound."""
    for name, model in models().items():
        for tag, word, record in _variants(model):
            suffix = "" if word is None else f" of {word}"
            whole = _record(record, tag, word)
            yield Golden(name, f"every member{suffix}", whole)
            optional = [member for member in members(record) if not member.required]
            if optional:
                yield Golden(name, f"required members alone{suffix}", _without(whole, *(m.name for m in optional)))
            for member in members(record):
                if member.nullable:
                    yield Golden(name, f"null {member.name}{suffix}", {**whole, member.name: None})
                for limit, value in _at_bound(member.kind):
                    yield Golden(name, f"{member.name} at {limit}{suffix}", {**whole, member.name: value})


def hostile_values() -> Iterator[Hostile]:
    """All hostile values, model by model."""
    for name, model in models().items():
        if isinstance(model, Union):
            yield from _bad_variants(name, model)
        others: tuple[Any, ...] = ([], "text", 1, True)
        for other in others:
            yield Hostile(name, "type", "", "invalid_params", other)
        for tag, word, record in _variants(model):
            whole = _record(record, tag, word)
            yield Hostile(name, "unknown", "'unknown_member'", "invalid_params", {**whole, "unknown_member": 1})
            for member in members(record):
                yield from _bad_member(name, whole, member)


def expand(value: Any) -> Any:
    """``value`` with its recipes carried out.

    ``{"$repeat": "x", "times": 3}`` is ``"xxx"``, and ``{"$items": v, "times": 3}`` an array of three.
    """
    if type(value) is list:
        return [expand(item) for item in value]
    if type(value) is not dict:
        return value
    if REPEAT in value:
        return value[REPEAT] * value["times"]
    if ITEMS in value:
        return [expand(value[ITEMS])] * value["times"]
    return {key: expand(item) for key, item in value.items()}


# -- right values ------------------------------------------------------------------------------------------------------

_WORDS: Final = ("a", "A", "1", "a/b")
# Members that only fit each other in some combinations: those of the reference's own making.
_CHOSEN: Final[Mapping[tuple[str, str], Any]] = {
    ("ProviderAuthRequirement", "kind"): "oauth",
    ("ErrorObject", "code"): -32602,
    ("ErrorObject", "message"): "invalid params",
}


def _variants(model: Model) -> Iterator[Variant]:
    if isinstance(model, Union):
        for word, record in model.variants.items():
            yield model.tag, word, record
    else:
        yield None, None, model


def _record(model: type, tag: str | None = None, word: str | None = None) -> dict[str, Any]:
    value: dict[str, Any] = {} if tag is None else {tag: word}
    for member in members(model):
        value[member.name] = _CHOSEN.get((model.__name__, member.name), _sample(member.kind))
    return value


def _sample(kind: WireType) -> Any:
    if isinstance(kind, Text):
        return kind.choices[0] if kind.choices else next(word for word in _WORDS if not check(kind, word))
    if isinstance(kind, SourcePath):
        return "a/b"
    if isinstance(kind, Integer):
        return max(kind.minimum, 1)
    if isinstance(kind, Boolean):
        return True
    if isinstance(kind, RpcId):
        return 1
    if isinstance(kind, Json):
        return {"a": [1, "\u00e9", None]}
    if isinstance(kind, Items):
        return [_sample(kind.of)]
    if isinstance(kind, Nested):
        return _record(kind.model)
    assert isinstance(kind, Union)
    return _record(*_swap(next(_variants(kind))))


def _swap(variant: Variant) -> tuple[type, str | None, str | None]:
    tag, word, record = variant
    return record, tag, word


def _at_bound(kind: WireType) -> Iterator[tuple[str, Any]]:
    for limit, value, _ in _bounds(kind):
        yield limit, value


def _bounds(kind: WireType) -> Iterator[tuple[str, Any, Any]]:
    """Each bound of a value by its name: what just fits, and what is one too much."""
    if isinstance(kind, Text) and kind.limit is not None and not kind.choices:
        maximum, word = LIMITS[kind.limit].value, _sample(kind)
        yield kind.limit, _repeat(word, maximum), _repeat(word, maximum + 1)
    elif isinstance(kind, SourcePath):
        maximum = LIMITS["MAX_MIGRATION_PATH_BYTES"].value
        yield "MAX_MIGRATION_PATH_BYTES", _repeat("a", maximum), _repeat("a", maximum + 1)
    elif isinstance(kind, RpcId):
        maximum = MAX_JSON_RPC_ID_BYTES
        yield "MAX_JSON_RPC_ID_BYTES", _repeat("a", maximum), _repeat("a", maximum + 1)
    elif isinstance(kind, Json) and kind.max_bytes is not None and not kind.only_object:
        maximum = LIMITS[kind.max_bytes].value - len('""')
        yield kind.max_bytes, _repeat("a", maximum), _repeat("a", maximum + 1)
    elif isinstance(kind, Items):
        for limit, fits, passes in _bounds(kind.of):
            yield limit, [fits], [passes]


def _repeat(word: str, times: int) -> dict[str, Any]:
    """The recipe of a string of ``times`` bytes."""
    return {REPEAT: word, "times": times}


def _without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in names}


# -- wrong values ------------------------------------------------------------------------------------------------------


def _bad_variants(name: str, union: Union) -> Iterator[Hostile]:
    whole = _record(*_swap(next(_variants(union))))
    yield Hostile(name, "missing", union.tag, "invalid_params", _without(whole, union.tag))
    yield Hostile(name, "null", union.tag, "invalid_params", {**whole, union.tag: None})
    yield Hostile(name, "type", union.tag, "invalid_params", {**whole, union.tag: 1})
    yield Hostile(name, "variant", union.tag, "invalid_params", {**whole, union.tag: "unknown_variant"})
    for word in union.deferred:
        yield Hostile(name, "variant", union.tag, "capability_mismatch", {**whole, union.tag: word})


def _bad_member(name: str, whole: dict[str, Any], member: Member) -> Iterator[Hostile]:
    at = member.name

    def hostile(fault: str, value: Any, path: str = at, error: str = "invalid_params") -> Hostile:
        return Hostile(name, fault, path, error, {**whole, at: value})

    if member.required:
        yield Hostile(name, "missing", at, "invalid_params", _without(whole, at))
    if not member.nullable:
        yield hostile("null", None)
    kind = member.kind
    for value in _wrong_types(kind):
        yield hostile("type", value)
    for _, _, passes in _bounds(kind):
        yield hostile("bytes", passes, f"{at}[0]" if isinstance(kind, Items) else at, "resource_exhausted")
    if isinstance(kind, Items):
        yield hostile("type", [None], f"{at}[0]")
        if kind.limit is not None:
            many = {ITEMS: _sample(kind.of), "times": LIMITS[kind.limit].value + 1}
            yield hostile("items", many, at, "resource_exhausted")
        for fault, value in _wrong_values(kind.of):
            yield hostile(fault, [value], f"{at}[0]")
    for fault, value in _wrong_values(kind):
        yield hostile(fault, value)


def _wrong_types(kind: WireType) -> Iterator[Any]:
    if isinstance(kind, Text | SourcePath):
        yield from (1, True, [], {})
    elif isinstance(kind, Integer):
        yield from ("1", True, [], {})
    elif isinstance(kind, Boolean):
        yield from (0, "true", [], {})
    elif isinstance(kind, RpcId):
        yield from (True, [], {})
    elif isinstance(kind, Items):
        yield from ({}, "a", 1)
    elif isinstance(kind, Nested | Union) or (isinstance(kind, Json) and kind.only_object):
        yield from ([], "a", 1)


def _wrong_values(kind: WireType) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, Text):
        if kind.choices:
            yield "enum", "unknown_word"
        for value in ("", " ", "not/a word"):
            if not kind.choices and check(kind, value):
                yield "value", value
    elif isinstance(kind, SourcePath):
        for value in ("", "/a", "../a", "a//b", "a\\b", "a\u0000", "\u202ea"):
            yield "value", value
    elif isinstance(kind, Integer):
        for number in (kind.minimum - 1, kind.maximum + 1):
            if abs(number) <= MAX_PORTABLE_INTEGER:
                yield "value", number
    elif isinstance(kind, RpcId):
        yield "value", ""
        yield "value", -1
