"""What hooks of 0.4, collections and services may return, and what becomes of it on the wire. Nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.errors import ResultError
from broker.extension.results import disposition_json, plain_json
from broker.wire.feature.models import ContextItem, StatusItem
from broker.wire.feature.results import (
    CommandResult,
    HookDisposition,
    HookResult,
    Rendering,
    Segment,
    decode_command_result,
    decode_context,
    decode_menu,
    decode_rendering,
    decode_status,
)
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.migration_models import (
    MigrationDetectResult,
    MigrationImportResult,
    decode_detect_result,
    decode_import_result,
)
from broker.wire.octet.schema import encode


def hook_json(given: Any) -> dict[str, Any]:
    """The result of ``hook/run`` on 0.4. ``None`` is :class:`~broker.wire.octet.models.Continue`."""
    if isinstance(given, HookResult):
        result = encode(given)
        result.update(result.pop("extra", {}))
        return result
    disposition = disposition_json(given)
    if disposition["kind"] == "defer":
        raise ResultError("API 0.4 has no Defer; return Continue or Deny")
    action = HookDisposition(action=disposition["kind"], reason=disposition.get("reason", ABSENT))
    return {"disposition": encode(action), "context": [], "notifications": []}


def record_json(method: str, given: Any) -> dict[str, Any]:
    """The result of a method whose result is a record, which the handler must return."""
    kind, decoded = _RECORDS[method]
    if not isinstance(given, kind):
        raise ResultError(f"the handler of {method} returns a {kind.__name__}, not {type(given).__name__}")
    result = encode(given)
    decoded(result)
    return result


def text_json(method: str, argument: Any, given: Any) -> Any:
    """The result of a collecting method of 0.4; a plain text stands for the record whose text it is."""
    if method == "command/execute":
        given = CommandResult(text="" if given is None else given) if not isinstance(given, CommandResult) else given
        result = encode(given)
        decode_command_result(result)
        return result
    if method == "status/collect":
        if given is None:
            return None
        if isinstance(given, str):
            given = StatusItem(surface=argument, text=given, style_role="muted", priority=0)
        result = encode(given) if isinstance(given, StatusItem) else given
        decode_status(argument)(result)
        return result
    if method == "context/collect":
        items = [given] if isinstance(given, ContextItem) else list(given or ())
        encoded = [encode(item) if isinstance(item, ContextItem) else item for item in items]
        decode_context(encoded)
        return encoded
    if method == "tool/render":
        if isinstance(given, str):
            given = [Segment(text=given, style_role="muted")]
        rendering = given if isinstance(given, Rendering) else Rendering(segments=tuple(given or ()))
        result = encode(rendering)
        decode_rendering(result)
        return result
    if method == "menu/collect":
        return decode_menu(plain_json(given)).tree
    return plain_json({} if given is None else given)


_RECORDS: Final[dict[str, tuple[type, Callable[[Any], Any]]]] = {
    "migration/detect": (MigrationDetectResult, decode_detect_result),
    "migration/import": (MigrationImportResult, decode_import_result),
}
