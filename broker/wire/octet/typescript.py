"""TypeScript declarations of the octet 0.3 wire models, made from the records themselves. Types only, no runtime."""

from __future__ import annotations

import json
from collections.abc import Iterator

from broker.errors import ERROR_TABLE
from broker.wire.octet.contract import METHODS, Direction, Status
from broker.wire.octet.json_schema import summary
from broker.wire.octet.migration_models import SourcePath
from broker.wire.octet.model_table import METHOD_MODELS, MODELS, STREAM_PAYLOADS, Model
from broker.wire.octet.schema import Boolean, Integer, Items, Json, Nested, RpcId, Text, Union, WireType, members
from broker.wire.octet.stream_models import PAYLOADS

HEAD = """\
// The wire models of octet extension API 0.3. Generated; do not edit by hand.
//
// A member with "?" may be absent; absent and null are different things. Numbers are integers, at most 2^53 - 1.

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };
export type NonNullJson = Exclude<JsonValue, null>;
export type RequestId = number | string;
"""


def declarations() -> str:
    """The text of the ``.d.ts`` file."""
    parts = [HEAD]
    parts += [_declare(name, model) for name, model in {**MODELS, **STREAM_PAYLOADS}.items()]
    parts += [_stream_events(), _methods(), _errors()]
    return "\n".join(parts)


def _declare(name: str, model: Model) -> str:
    if isinstance(model, Union):
        variants = " |\n".join(f"  {_inline(variant, model.tag, tag)}" for tag, variant in model.variants.items())
        return f"export type {name} =\n{variants};\n"
    lines = "".join(f"  {line};\n" for line in _members(model))
    body = f"{{\n{lines}}}" if lines else "Record<string, never>"
    keyword = f"export interface {name} " if lines else f"export type {name} = "
    return f"/** {summary(model)} */\n{keyword}{body}{'' if lines else ';'}\n"


def _inline(model: type, tag: str, word: str) -> str:
    return "{ " + "; ".join([f"readonly {tag}: {json.dumps(word)}", *_members(model)]) + " }"


def _members(model: type) -> Iterator[str]:
    for member in members(model):
        kind = _type(member.kind)
        if isinstance(member.kind, Json):
            kind = "JsonValue" if member.nullable else kind
        elif member.nullable:
            kind += " | null"
        yield f"readonly {member.name}{'' if member.required else '?'}: {kind}"


def _type(kind: WireType) -> str:
    if isinstance(kind, Text):
        return " | ".join(map(json.dumps, kind.choices)) if kind.choices else "string"
    if isinstance(kind, Integer):
        return "number"
    if isinstance(kind, Boolean):
        return "boolean"
    if isinstance(kind, RpcId):
        return "RequestId"
    if isinstance(kind, SourcePath):
        return "string"
    if isinstance(kind, Json):
        return "{ readonly [key: string]: JsonValue }" if kind.only_object else "NonNullJson"
    if isinstance(kind, Items):
        inner = _type(kind.of)
        return f"readonly ({inner})[]" if " | " in inner else f"readonly {inner}[]"
    assert isinstance(kind, Nested | Union)
    model = kind.model if isinstance(kind, Nested) else kind
    for name, other in MODELS.items():
        if other is model:
            return name
    assert isinstance(model, type)
    return "{ " + "; ".join(_members(model)) + " }"


def _stream_events() -> str:
    lines = "".join(f"  readonly {kind}: {payload.__name__};\n" for kind, payload in PAYLOADS.items())
    return (
        "/** The payload of each kind of `provider/event`; those of `error` and `heartbeat` are not looked at. */\n"
        f"export interface StreamPayloads {{\n{lines}"
        "  readonly error: NonNullJson;\n  readonly heartbeat: NonNullJson;\n}\n"
    )


def _methods() -> str:
    parts = []
    for title, directions, notification in (
        ("HostRequests", (Direction.HOST_TO_EXTENSION,), False),
        ("HostNotifications", (Direction.HOST_TO_EXTENSION, Direction.BIDIRECTIONAL), True),
        ("ExtensionRequests", (Direction.EXTENSION_TO_HOST,), False),
        ("ExtensionNotifications", (Direction.EXTENSION_TO_HOST, Direction.BIDIRECTIONAL), True),
    ):
        lines = []
        for name, method in METHODS.items():
            row = METHOD_MODELS[name]
            if method.status is Status.DEFERRED or method.notification is not notification:
                continue
            if method.direction in directions:
                result = "" if notification else f"; readonly result: {row.result}"
                lines.append(f"  readonly {json.dumps(name)}: {{ readonly params: {row.params}{result} }};\n")
        parts.append(f"export interface {title} {{\n{''.join(lines)}}}\n")
    return "\n".join(parts)


def _errors() -> str:
    rows = "".join(
        f"  | {{ readonly code: {row.code}; readonly message: {json.dumps(row.message)} }}\n"
        for row in ERROR_TABLE.values()
    )
    return f"/** The only pairs that an error may carry. */\nexport type ErrorPair =\n{rows.rstrip()};\n"
