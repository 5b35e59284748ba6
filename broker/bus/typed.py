"""Typed topics from attrs classes: one class is the declaration, the payload, and what a subscriber gets back.

::

    @topic("bus.alpha.status")
    @attrs.frozen
    class Status:
        summary: Annotated[str, Bounds(max_bytes=128)]
        step: Annotated[int | None, Bounds(minimum=0, maximum=9)] = None

``str``, ``int``, ``bool``, ``Literal[...]`` of strings and ``Enum`` classes with string values become the field kinds;
an attribute with a default is an optional field, and ``None`` stands for an absent one. Conversion is strict: ``"5"``
is not 5 and ``True`` is not 1.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
from attrs import frozen
from cattrs import BaseValidationError, Converter, transform_error
from cattrs.gen import make_dict_structure_fn

from broker.bus.fields import Field, topic_fault
from broker.errors import Fault, InvalidParamsError, UsageError
from broker.limits import MAX_BUS_STRING_BYTES

C = TypeVar("C", bound=type)
_ATTRIBUTE = "__broker_topic__"


@frozen
class Bounds:
    """Bounds of one attribute, given as ``Annotated[str, Bounds(max_bytes=128)]``; units as in ``Field``."""

    max_bytes: int = MAX_BUS_STRING_BYTES
    minimum: int | None = None
    maximum: int | None = None


@frozen(eq=False)
class TypedTopic:
    """What a class says about its topic: the name, the declared fields, and how to convert both ways."""

    name: str
    cls: type
    fields: tuple[Field, ...]
    converter: Converter

    def payload(self, value: Any) -> dict[str, Any]:
        """The payload of an instance: plain scalars, absent where an optional attribute is ``None``."""
        payload = {}
        for item in self.fields:
            attribute = getattr(value, item.name)
            if attribute is None and not item.required:
                continue
            payload[item.name] = attribute.value if isinstance(attribute, Enum) else attribute
        return payload

    def decode(self, payload: Mapping[str, Any]) -> Any:
        """An instance from a payload; fields the class does not name are dropped. Faults: InvalidParamsError."""
        try:
            return self.converter.structure(payload, self.cls)
        except (BaseValidationError, TypeError, ValueError) as error:
            texts = transform_error(error, "payload")
            raise InvalidParamsError(
                f"event on {self.name} does not fit {self.cls.__qualname__}: {'; '.join(texts)}",
                topic=self.name,
                faults=[Fault("payload", text) for text in texts],
            ) from error

    def mismatches(self, declared: Sequence[Field]) -> list[Fault]:
        """Why this class cannot read what ``declared`` publishes; empty when it can."""
        faults = []
        published = {item.name: item for item in declared}
        for mine in self.fields:
            theirs = published.get(mine.name)
            path = f"{self.cls.__qualname__}.{mine.name}"
            if theirs is None:
                if mine.required:
                    faults.append(Fault(path, "not a field of the declared topic"))
            elif theirs.kind != mine.kind:
                faults.append(Fault(path, f"is of kind {mine.kind}, declared as {theirs.kind}"))
            elif mine.required and not theirs.required:
                faults.append(Fault(path, "is required, but optional in the declared topic"))
            elif extra := sorted(set(theirs.values) - set(mine.values)):
                faults.append(Fault(path, f"does not know the declared value {extra[0]!r}"))
        return faults


def topic(name: str) -> Callable[[C], C]:
    """Make an attrs class the type of topic ``name``. Wrong use is a :class:`UsageError` where the class is defined."""

    def decorate(cls: C) -> C:
        if fault := topic_fault(name):
            raise UsageError(f"@topic({name!r}) on {cls.__qualname__}: {fault}", topic=name)
        if "__attrs_attrs__" not in cls.__dict__:
            raise UsageError(f"@topic on {cls.__qualname__}: put it above @attrs.frozen; it needs an attrs class")
        setattr(cls, _ATTRIBUTE, _describe(name, cls))
        return cls

    return decorate


def typed_topic(cls: type) -> TypedTopic:
    """What :func:`topic` recorded for exactly this class; :class:`UsageError` when it is not a topic class."""
    found = cls.__dict__.get(_ATTRIBUTE)
    if not isinstance(found, TypedTopic):
        raise UsageError(f'{cls.__qualname__} is not a topic class: decorate it with @topic("bus.<owner>.<name>")')
    return found


def _describe(name: str, cls: type) -> TypedTopic:
    converter = Converter(detailed_validation=True)
    for scalar in (str, int, bool):
        converter.register_structure_hook(scalar, _exact(scalar))
    converter.register_structure_hook_func(_is_enum, _enum_member)
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = tuple(_field(cls, attribute, hints[attribute.name]) for attribute in attrs.fields(cls))
    converter.register_structure_hook(cls, make_dict_structure_fn(cls, converter))
    return TypedTopic(name, cls, fields, converter)


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _exact(scalar: type) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is not scalar:
            raise TypeError(f"expected {scalar.__name__}, got {type(value).__name__}")
        return value

    return structure


def _enum_member(value: Any, cls: Any) -> Any:
    if type(value) is not str:
        raise TypeError(f"expected str, got {type(value).__name__}")
    return cls(value)


def _field(cls: type, attribute: attrs.Attribute[Any], hint: Any) -> Field:
    bounds = Bounds()
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        bounds = next((extra for extra in extras if isinstance(extra, Bounds)), bounds)
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        hint = options[0] if len(options) == 1 else hint
    required = attribute.default is attrs.NOTHING
    name = attribute.name
    if attribute.alias not in (None, name):
        raise UsageError(f"{cls.__qualname__}.{name}: a topic attribute is public and has no alias")
    if hint is str:
        return Field.string(name, bounds.max_bytes, required=required)
    if hint is int:
        return Field.integer(name, bounds.minimum, bounds.maximum, required=required)
    if hint is bool:
        return Field.boolean(name, required=required)
    values: tuple[Any, ...] = ()
    if get_origin(hint) is Literal:
        values = get_args(hint)
    elif _is_enum(hint):
        values = tuple(member.value for member in hint)
    if values and all(type(value) is str for value in values):
        return Field.enum(name, values, max_bytes=bounds.max_bytes, required=required)
    raise UsageError(
        f"{cls.__qualname__}.{name}: {hint!r} is no bus field type; use str, int, bool, a Literal of strings or an Enum"
    )
