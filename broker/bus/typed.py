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
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
from attrs import frozen

from broker.bus.fields import Field, declaration_faults, topic_fault
from broker.errors import Fault, InvalidParamsError, UsageError
from broker.limits import MAX_BUS_STRING_BYTES

if TYPE_CHECKING:
    from cattrs import Converter

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
        from cattrs import BaseValidationError, transform_error

        try:
            return self.converter.structure(payload, self.cls)
        except (BaseValidationError, TypeError, ValueError) as error:
            faults = []
            for text in transform_error(error, "payload", format_exception=_problem):
                problem, _, path = text.rpartition(" @ ")
                faults.append(Fault(path, problem))
            raise InvalidParamsError(
                f"event on {self.name} does not fit {self.cls.__qualname__}: {'; '.join(map(str, faults))}",
                topic=self.name,
                faults=faults,
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
        setattr(cls, _ATTRIBUTE, describe(name, cls))
        return cls

    return decorate


def typed_topic(cls: type) -> TypedTopic:
    """What :func:`topic` recorded for exactly this class; :class:`UsageError` when it is not a topic class."""
    found = cls.__dict__.get(_ATTRIBUTE)
    if not isinstance(found, TypedTopic):
        raise UsageError(f'{cls.__qualname__} is not a topic class: decorate it with @topic("bus.<owner>.<name>")')
    return found


def describe(name: str, cls: type) -> TypedTopic:
    """What an attrs class says as the type of topic ``name``; :class:`UsageError` for one that cannot be."""
    # Imported by the first topic class: a bus without any need not wait for it.
    from cattrs import Converter, StructureHandlerNotFoundError
    from cattrs.gen import make_dict_structure_fn

    converter = Converter(detailed_validation=True)
    for scalar in (str, int, bool):
        converter.register_structure_hook(scalar, _exact(scalar))
    converter.register_structure_hook_func(_is_enum, _enum_member)
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise UsageError(
            f"@topic on {cls.__qualname__}: an annotation cannot be evaluated ({error});"
            " the types it names must be defined before the class, at module level"
        ) from error
    fields = tuple(_field(cls, attribute, hints.get(attribute.name)) for attribute in attrs.fields(cls))
    if faults := declaration_faults(fields):
        problems = "; ".join(map(str, faults))
        raise UsageError(f"@topic({name!r}) on {cls.__qualname__}: {problems}", topic=name, faults=faults)
    try:
        converter.register_structure_hook(cls, make_dict_structure_fn(cls, converter))
    except StructureHandlerNotFoundError as error:  # an open type variable that no attribute names
        raise UsageError(f"@topic on {cls.__qualname__}: a topic class has no open type variables ({error})") from error
    return TypedTopic(name, cls, fields, converter)


def _problem(error: BaseException, _: type | None) -> str:
    return "missing" if isinstance(error, KeyError) else str(error) or type(error).__name__


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


def _unwrapped(hint: Any) -> tuple[Any, Bounds, bool]:
    """The bare type of an annotation, its bounds, and whether it may be ``None``; wrapped in any order."""
    bounds, optional = Bounds(), False
    while True:
        arguments = get_args(hint)
        if get_origin(hint) is Annotated:
            hint, *extras = arguments
            bounds = next((extra for extra in extras if isinstance(extra, Bounds)), bounds)
        elif get_origin(hint) in (Union, types.UnionType) and types.NoneType in arguments and len(arguments) == 2:
            hint = next(option for option in arguments if option is not types.NoneType)
            optional = True
        else:
            return hint, bounds, optional


def _field(cls: type, attribute: attrs.Attribute[Any], annotation: Any) -> Field:
    hint, bounds, optional = _unwrapped(annotation)
    name = attribute.name
    where = f"{cls.__qualname__}.{name}"
    if attribute.alias not in (None, name):
        raise UsageError(f"{where}: a topic attribute is public and has no alias")
    if optional and attribute.default is not None:
        raise UsageError(f"{where}: None stands for an absent field, so give it the default None")
    kind, values = _kind(hint)
    if not kind:
        raise UsageError(f"{where}: {hint!r} is no bus field type; use str, int, bool, a Literal of strings or an Enum")
    if kind not in ("string", "enum") and bounds.max_bytes != MAX_BUS_STRING_BYTES:
        raise UsageError(f"{where}: max_bytes bounds strings, not a field of kind {kind}")
    required = attribute.default is attrs.NOTHING
    return Field(name, kind, required, bounds.max_bytes, values, bounds.minimum, bounds.maximum)


def _kind(hint: Any) -> tuple[str, tuple[str, ...]]:
    """The field kind of a bare type, with an enum's values; an empty kind for a type that no field has."""
    plain = {str: "string", int: "integer", bool: "boolean"}
    if isinstance(hint, type) and hint in plain:
        return plain[hint], ()
    values: tuple[Any, ...] = ()
    if get_origin(hint) is Literal:
        values = get_args(hint)
    elif _is_enum(hint):
        values = tuple(member.value for member in hint)
    return "enum" if values and all(type(value) is str for value in values) else "", values
