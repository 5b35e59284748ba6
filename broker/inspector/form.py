"""A form for a tool's arguments, made from the JSON schema the tool declares.

What a field cannot say in one line (an object, an array, a union) is written as JSON. A schema that is no object with
properties gives no fields; then the whole of the arguments is written as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from broker.errors import Fault, InvalidParamsError
from broker.limits import MAX_SCHEMA_PROPERTY_NAME_BYTES
from broker.wire.quoting import escape, utf8_length

_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]{1,32}\s*", re.ASCII)
_TYPES: Final = ("string", "integer", "number", "boolean")


@frozen
class FormField:
    """One argument. ``type`` is string, integer, number, boolean, or json for anything that is written as JSON.

    ``choices`` are the texts of an enumeration, ``default`` what the schema names, as it would be typed.
    """

    name: str
    type: str
    required: bool
    description: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""

    def read(self, text: str) -> Any:
        """The value of what was typed; raises :class:`ValueError` that says what was expected."""
        if self.choices:
            for choice in self.choices:
                if text == choice:
                    return choice if self.type == "string" else json.loads(choice)
            raise ValueError(f"expected one of {', '.join(self.choices)}")
        if self.type == "string":
            return text
        if self.type == "integer":
            # Not int() alone: that takes "1_000", digits of other scripts, and none of very many.
            if _WHOLE.fullmatch(text) is None:
                raise ValueError("expected a whole number")
            return int(text)
        if self.type == "boolean":
            if text not in ("true", "false"):
                raise ValueError("expected true or false")
            return text == "true"
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ValueError("expected a number" if self.type == "number" else f"expected JSON: {error}") from None
        if self.type == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError("expected a number")
        return value


@frozen
class Form:
    """The fields of one tool's arguments. ``problem`` says why there are none, where a schema gives none."""

    fields: tuple[FormField, ...]
    problem: str | None = None

    @classmethod
    def from_schema(cls, schema: Any) -> Form:
        """The form of a schema; never raises, whatever an extension sent."""
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(properties, Mapping):
            is_empty = isinstance(schema, Mapping) and schema.get("type") == "object" and properties is None
            return cls((), None if is_empty else "the schema names no properties: write the arguments as JSON")
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        fields = [
            _field(str(name), declared, required=name in names)
            for name, declared in properties.items()
            if utf8_length(str(name)) <= MAX_SCHEMA_PROPERTY_NAME_BYTES
        ]
        return cls(tuple(sorted(fields, key=lambda field: not field.required)))

    def read(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """The arguments of what was typed; an optional field left empty is left out.

        Raises ``invalid_params`` whose ``faults`` name every field that is wrong.
        """
        arguments: dict[str, Any] = {}
        faults = []
        for field in self.fields:
            text = texts.get(field.name, "")
            if not text and (not field.required or field.type != "string" or field.choices):
                if field.required:
                    faults.append(Fault(field.name, "a value is required"))
                continue
            try:
                arguments[field.name] = field.read(text)
            except ValueError as error:
                faults.append(Fault(field.name, str(error)))
        if faults:
            raise InvalidParamsError("; ".join(str(fault) for fault in faults), path="arguments", faults=faults)
        return arguments


def read_json(text: str) -> Any:
    """Arguments that were written as JSON; nothing written is ``{}``. Raises ``invalid_params``."""
    try:
        return json.loads(text, parse_constant=_refuse) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidParamsError(f"the arguments are not JSON: {error}", path="arguments") from None


def _field(name: str, declared: Any, *, required: bool) -> FormField:
    declared = declared if isinstance(declared, Mapping) else {}
    kind = declared.get("type")
    kind = kind if isinstance(kind, str) and kind in _TYPES else "json"
    values = declared.get("enum")
    choices: tuple[str, ...] = ()
    if isinstance(values, list) and values:
        choices = tuple(_typed(value, kind) for value in values)
    description = declared.get("description")
    return FormField(
        name,
        kind,
        required,
        escape(description) if isinstance(description, str) else "",
        choices,
        _typed(declared["default"], kind) if "default" in declared else "",
    )


def _typed(value: Any, kind: str) -> str:
    """A value as it would be typed into its field."""
    return value if kind == "string" and isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
