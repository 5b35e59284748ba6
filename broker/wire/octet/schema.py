"""How a wire record is described, and the one checker that judges values against a description.

A record is a frozen attrs class; each attribute carries its wire type in its metadata::

    @frozen(kw_only=True)
    class BusAck:
        binding_id: str = attrs.field(metadata=wire(Text()))

An attribute with the default :data:`~broker.wire.jsonrpc.ABSENT` is optional on the wire, any other is required;
``nullable`` says whether ``null`` may stand for it. Optional and nullable together keep "absent" and "null" apart.

:func:`check` finds every fault of a value, in the fixed order of the canonical wire: not an object; unknown members;
then for each declared member, in order of declaration, its presence, null, type, item count, byte length and choice.
The first fault decides the row of the error table: item counts and byte lengths are ``resource_exhausted``, a deferred
variant of a union is ``capability_mismatch``, all else is ``invalid_params``.

Source: octet reference, section "Generated wire models" (types, presence, nullability) and "Bounds".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn, Protocol, TypeVar

import attrs
from attrs import frozen

from broker import canonical
from broker.errors import BrokerError, CanonicalError, Fault, InvalidParamsError, ProtocolError
from broker.limits import LIMITS, MAX_PORTABLE_INTEGER, MAX_REPORTED_FAULTS
from broker.wire.jsonrpc import ABSENT, check_id, json_type
from broker.wire.quoting import CONTROL_CHARACTER, quote, utf8_length

_WIRE: Final = "broker.wire"

Model = TypeVar("Model")


class WireType(Protocol):
    """The type of one wire value: how it is checked, built from decoded JSON, and turned back into it."""

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        """Append every fault of ``value``, which stands at ``path``, to ``faults``."""
        ...

    def decode(self, value: Any) -> Any:
        """The Python value of a checked ``value``."""
        ...

    def encode(self, value: Any) -> Any:
        """Plain JSON of a Python value."""
        ...


def over(path: str, problem: str, limit: str, observed: int) -> Fault:
    """A ``resource_exhausted`` fault against the bound called ``limit`` in :mod:`broker.limits`."""
    return Fault(path, problem, "resource_exhausted", limit, observed, LIMITS[limit].value)


def wrong_type(path: str, expected: str, value: Any) -> Fault:
    """An ``invalid_params`` fault: the value at ``path`` is not of the ``expected`` JSON type."""
    return Fault(path, f"must be {expected}, not {json_type(value)}")


@frozen
class _Plain:
    """A value that is the same in Python and in JSON."""

    def decode(self, value: Any) -> Any:
        return value

    def encode(self, value: Any) -> Any:
        return value


@frozen
class Text(_Plain):
    """A string. ``limit`` names the bound on its UTF-8 bytes; ``choices`` and ``pattern`` say what it may be.

    ``label`` asks for text a person can see: not blank, no control characters. What is ``secret`` is never quoted.
    """

    limit: str | None = None
    empty: bool = True
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    label: bool = False
    secret: bool = False

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if type(value) is not str:
            faults.append(wrong_type(path, "a string", value))
            return
        if self.limit is not None:
            size = utf8_length(value)
            if size > LIMITS[self.limit].value:
                faults.append(over(path, "is too long", self.limit, size))
                return
        if not value and not self.empty:
            faults.append(Fault(path, "must not be empty"))
        elif self.choices and value not in self.choices:
            faults.append(Fault(path, f"must be one of {', '.join(self.choices)}, not {quote(value)}"))
        elif self.pattern is not None and re.fullmatch(self.pattern, value) is None:
            faults.append(Fault(path, f"must match {self.pattern}" + ("" if self.secret else f", not {quote(value)}")))
        elif self.label and value.isspace():
            faults.append(Fault(path, "must not be blank"))
        elif self.label and CONTROL_CHARACTER.search(value) is not None:
            faults.append(Fault(path, f"must have no control characters, not {quote(value)}"))


@frozen
class Integer(_Plain):
    """An integer, never a boolean or a fraction, from ``minimum`` to ``maximum``."""

    minimum: int = 0
    maximum: int = MAX_PORTABLE_INTEGER

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if type(value) is not int:
            faults.append(wrong_type(path, "an integer", value))
        elif not self.minimum <= value <= self.maximum:
            faults.append(Fault(path, f"must be {self.minimum} to {self.maximum}, not {value}"))


@frozen
class Boolean(_Plain):
    """``true`` or ``false``."""

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if type(value) is not bool:
            faults.append(wrong_type(path, "a boolean", value))


@frozen
class RpcId(_Plain):
    """A request id: a string of 1 to 256 bytes, or a portable integer from 0."""

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        try:
            check_id(value)
        except ProtocolError as error:
            name = "invalid_params" if error.limit is None else "resource_exhausted"
            faults.append(Fault(path, "is not a request id", name, error.limit, error.observed, error.maximum))


@frozen
class Json(_Plain):
    """Any JSON value. ``max_bytes``, ``max_nodes`` and ``max_key_bytes`` name the bounds on its canonical size, on the
    number of values in it, and on each object key in it; ``only_object`` asks for an object.
    """

    max_bytes: str | None = None
    max_nodes: str | None = None
    max_key_bytes: str | None = None
    only_object: bool = False

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if self.only_object and type(value) is not dict:
            faults.append(wrong_type(path, "an object", value))
            return
        if self.max_bytes is not None:
            try:
                size = canonical.size(value)
            except CanonicalError as error:
                faults.append(Fault(path, str(error)))
                return
            if size > LIMITS[self.max_bytes].value:
                faults.append(over(path, "is too large", self.max_bytes, size))
        if self.max_nodes is not None or self.max_key_bytes is not None:
            self._check_nodes(value, path, faults)

    def _check_nodes(self, value: Any, path: str, faults: list[Fault]) -> None:
        nodes = longest = 0
        pending = [value]
        while pending:
            node = pending.pop()
            nodes += 1
            if type(node) is dict:
                longest = max(longest, max(map(utf8_length, node), default=0))
                pending.extend(node.values())
            elif type(node) is list:
                pending.extend(node)
        if self.max_nodes is not None and nodes > LIMITS[self.max_nodes].value:
            faults.append(over(path, "has too many values", self.max_nodes, nodes))
        if self.max_key_bytes is not None and longest > LIMITS[self.max_key_bytes].value:
            faults.append(over(path, "has a key that is too long", self.max_key_bytes, longest))


@frozen
class Items:
    """An array of ``of``; ``limit`` names the bound on its length. Items beyond the bound are not looked at."""

    of: WireType
    limit: str | None = None

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if type(value) is not list:
            faults.append(wrong_type(path, "an array", value))
            return
        if self.limit is not None and len(value) > LIMITS[self.limit].value:
            faults.append(over(path, "has too many items", self.limit, len(value)))
            return
        for index, item in enumerate(value):
            if len(faults) >= MAX_REPORTED_FAULTS:
                return
            self.of.check(item, f"{path}[{index}]", faults)

    def decode(self, value: Any) -> Any:
        return tuple(map(self.of.decode, value))

    def encode(self, value: Any) -> Any:
        return list(map(self.of.encode, value))


@frozen
class Nested:
    """A record described by the attrs class ``model``."""

    model: type

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        _record(self.model).check(value, path, faults)

    def decode(self, value: Any) -> Any:
        return _record(self.model).decode(value)

    def encode(self, value: Any) -> Any:
        return _record(self.model).encode(value)


@frozen
class Union:
    """A record whose member ``tag`` says which of ``variants`` it is. Those in ``deferred`` may not be used yet."""

    tag: str
    variants: Mapping[str, type]
    deferred: tuple[str, ...] = ()

    def check(self, value: Any, path: str, faults: list[Fault]) -> None:
        if type(value) is not dict:
            faults.append(wrong_type(path, "an object", value))
            return
        at = _join(path, self.tag)
        if self.tag not in value:
            faults.append(Fault(at, "is missing"))
            return
        tag = value[self.tag]
        if type(tag) is not str:
            faults.append(wrong_type(at, "a string", tag))
        elif tag in self.deferred:
            faults.append(Fault(at, f"{tag} is deferred and may not be used", "capability_mismatch"))
        elif tag not in self.variants:
            faults.append(Fault(at, f"must be one of {', '.join(self.variants)}, not {quote(tag)}"))
        else:
            _record(self.variants[tag]).check(value, path, faults, tag=self.tag)

    def decode(self, value: Any) -> Any:
        return _record(self.variants[value[self.tag]]).decode(value)

    def encode(self, value: Any) -> Any:
        for tag, model in self.variants.items():
            if type(value) is model:
                return {self.tag: tag, **_record(model).encode(value)}
        raise TypeError(f"{type(value).__name__} is not a variant of this union")


def wire(kind: WireType, *, nullable: bool = False) -> dict[str, Any]:
    """The attrs metadata that makes an attribute a wire member of type ``kind``."""
    return {_WIRE: (kind, nullable)}


def check(kind: WireType | type, value: Any, path: str = "") -> list[Fault]:
    """Every fault of ``value`` (at most ``MAX_REPORTED_FAULTS``), the deciding one first; empty when it is valid."""
    faults: list[Fault] = []
    _of(kind).check(value, path, faults)
    del faults[MAX_REPORTED_FAULTS:]
    return faults


def decode(model: type[Model], value: Any, *, what: str = "", error: type[BrokerError] = InvalidParamsError) -> Model:
    """``value`` as a ``model``, or raise ``error`` with the row of the first fault and all ``faults``.

    ``what`` names the value in the error's text, such as ``params of bus/declare``.
    """
    faults = check(model, value)
    if faults:
        refuse(faults, what=what or model.__name__, error=error)
    built: Model = _record(model).decode(value)
    return built


def decode_union(union: Union, value: Any, *, what: str, error: type[BrokerError] = InvalidParamsError) -> Any:
    """As :func:`decode`, for a record with variants: an instance of the variant its tag names."""
    faults = check(union, value)
    if faults:
        refuse(faults, what=what, error=error)
    return union.decode(value)


def members(model: type) -> tuple[Member, ...]:
    """The members of a record, in order of declaration."""
    return _record(model).members


def encode(value: Any) -> dict[str, Any]:
    """The plain JSON object of a model, absent members left out. A union's own ``encode`` adds a variant's tag."""
    return _record(type(value)).encode(value)


def refuse(faults: list[Fault], *, what: str, error: type[BrokerError]) -> NoReturn:
    """Raise ``error`` for ``faults``: the first decides its row, ``path`` and bound."""
    first = faults[0]
    shown = faults[:MAX_REPORTED_FAULTS]
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    raise error(
        f"{what}: {first}{more}",
        name=first.name,
        path=first.path,
        limit=first.limit,
        observed=first.observed,
        maximum=first.maximum,
        faults=shown,
    )


@frozen
class Member:
    """One member of a record: its wire type, whether it must be there, and whether it may be null."""

    name: str
    kind: WireType
    required: bool
    nullable: bool


@frozen
class _Record:
    model: type
    members: tuple[Member, ...]
    names: frozenset[str]

    def check(self, value: Any, path: str, faults: list[Fault], tag: str | None = None) -> None:
        if type(value) is not dict:
            faults.append(wrong_type(path, "an object", value))
            return
        unknown = value.keys() - self.names - {tag}
        for name in sorted(unknown)[:MAX_REPORTED_FAULTS]:
            faults.append(Fault(_join(path, quote(name)), "is not a known member"))
        for member in self.members:
            at = _join(path, member.name)
            if member.name not in value:
                if member.required:
                    faults.append(Fault(at, "is missing"))
            elif value[member.name] is not None:
                member.kind.check(value[member.name], at, faults)
            elif not member.nullable:
                faults.append(Fault(at, "must not be null"))

    def decode(self, value: Any) -> Any:
        return self.model(
            **{
                member.name: None if (inner := value[member.name]) is None else member.kind.decode(inner)
                for member in self.members
                if member.name in value
            }
        )

    def encode(self, value: Any) -> dict[str, Any]:
        return {
            member.name: None if inner is None else member.kind.encode(inner)
            for member in self.members
            if (inner := getattr(value, member.name)) is not ABSENT
        }


_RECORDS: Final[dict[type, _Record]] = {}


def _record(model: type) -> _Record:
    record = _RECORDS.get(model)
    if record is None:
        record = _RECORDS[model] = _describe(model)
    return record


def _describe(model: type) -> _Record:
    members = []
    for attribute in attrs.fields(model):
        kind, nullable = attribute.metadata[_WIRE]
        members.append(Member(attribute.name, kind, attribute.default is not ABSENT, nullable))
    return _Record(model, tuple(members), frozenset(member.name for member in members))


def _of(kind: WireType | type) -> WireType:
    return Nested(kind) if isinstance(kind, type) else kind


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
