"""What tools and hooks may return, and what becomes of it on the wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
from attrs import field, frozen

from broker import canonical
from broker.errors import CanonicalError, ResultError
from broker.limits import CUT_NOTICE_BYTES
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.models import DISPOSITION, Continue, Defer, Deny, ToolCallResult
from broker.wire.octet.schema import check, decode, encode
from broker.wire.quoting import scalar


class ToolFailureError(Exception):
    """Raise it in a tool: the call fails with this text (``is_error``), and the extension goes on."""


@frozen
class Result:
    """A tool's result with all that the wire has beside its text.

    ``content`` is one text or several parts, ``structured`` any JSON for programs, ``metadata`` JSON for the host.
    """

    content: str | Sequence[str] = ""
    structured: Any = field(default=ABSENT, kw_only=True)
    metadata: Any = field(default=None, kw_only=True)
    is_error: bool = field(default=False, kw_only=True)


def result_json(value: Any, *, api: str) -> dict[str, Any]:
    """The result of ``tool/call`` for what a tool returned.

    A ``str`` is one text part and a list of them several, ``None`` is no part, :class:`Result` says everything itself;
    any other JSON value, and an attrs instance, becomes structured content beside its JSON text. Raises
    :class:`~broker.errors.ResultError` for a value over a bound of the wire or none that it holds.
    """
    if isinstance(value, _model(api)):
        return _checked(encode(value), api)
    if not isinstance(value, Result):
        value = _as_result(value)
    texts = [value.content] if isinstance(value.content, str) else list(value.content)
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": scalar(text)} for text in texts],
        "is_error": value.is_error,
        "metadata": value.metadata,
    }
    if value.structured is not ABSENT:
        result["structured_content"] = plain_json(value.structured)
    return _checked(result, api)


def failure_json(text: str) -> dict[str, Any]:
    """The result of ``tool/call`` for a tool that failed."""
    return {"content": [{"type": "text", "text": scalar(text)}], "is_error": True, "metadata": None}


def disposition_json(given: Any) -> dict[str, Any]:
    """The disposition a hook returned; ``None`` is :class:`~broker.wire.octet.models.Continue`."""
    given = Continue() if given is None else given
    if not isinstance(given, Continue | Deny | Defer):
        raise ResultError(f"a hook returns None, Continue, Deny or Defer, not {type(given).__name__}")
    disposition = DISPOSITION.encode(given)
    if faults := check(DISPOSITION, disposition, "disposition"):
        raise ResultError("; ".join(map(str, faults)), faults=faults)
    return disposition  # type: ignore[no-any-return]


def cut_texts(result: dict[str, Any], excess: int) -> dict[str, Any]:
    """``result`` with at least ``excess`` bytes less of text, from its end, and a notice that says how much.

    Raises :class:`~broker.errors.ResultError` when there is not that much text.
    """
    texts = [part["text"] for part in result["content"] if "text" in part]
    sizes = [canonical.string_size(text) for text in texts]
    budget = sum(sizes) - excess - 2 * CUT_NOTICE_BYTES
    if budget < 0:
        raise ResultError("the result is over the host's bound, and not for its text")
    kept: list[str] = []
    for text, size in zip(texts, sizes, strict=True):
        if size > budget:
            kept.append(_prefix(text, budget))
            break
        kept.append(text)
        budget -= size
    lost = sum(map(len, texts)) - sum(map(len, kept))
    kept.append(f"[{lost} characters left out: the host takes no more]")
    return {**result, "content": [{"type": "text", "text": text} for text in kept]}


def plain_json(value: Any) -> Any:
    """``value`` as plain JSON: attrs instances as objects, tuples as arrays."""
    if attrs.has(type(value)):
        return {item.name: plain_json(getattr(value, item.name)) for item in attrs.fields(type(value))}
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    return value


def _as_result(value: Any) -> Result:
    if value is None:
        return Result(())
    if isinstance(value, str):
        return Result(value)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return Result(value)
    structured = plain_json(value)
    try:
        return Result(json.dumps(structured, ensure_ascii=False, allow_nan=False), structured=structured)
    except (TypeError, ValueError) as error:
        raise ResultError(f"returned what JSON does not hold: {error}") from None


def _checked(result: dict[str, Any], api: str) -> dict[str, Any]:
    if api == "0.3":
        for member in ("metadata", "structured_content"):
            try:
                canonical.size(result.get(member))
            except CanonicalError as error:
                raise ResultError(f"its {member} is not what API 0.3 holds: {error}") from None
    decode(_model(api), result, what="its result", error=ResultError)
    return result


def _model(api: str) -> type:
    """The record of a result in ``api``."""
    if api == "0.3":
        return ToolCallResult
    from broker.wire.feature.results import FeatureToolResult

    return FeatureToolResult


def _prefix(text: str, budget: int) -> str:
    """The longest beginning of ``text`` whose canonical form takes at most ``budget`` bytes."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if canonical.string_size(text[:middle]) <= budget:
            low = middle
        else:
            high = middle - 1
    return text[:low]
