"""What is wrong with one line of a server, by rule; and what it was probably meant to say."""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import frozen

from broker.wire.jsonrpc import json_type
from broker.wire.mcp.decoding import WHITE_SPACE, Junk, decode_line
from broker.wire.quoting import quote

_BOM: Final = b"\xef\xbb\xbf"
_LINE: Final = "odek.transport.line"


@frozen
class ReadLine:
    """A line: the rules it breaks, each with what is wrong, and the messages in it as far as they can be made out."""

    faults: tuple[tuple[str, str], ...] = ()
    messages: tuple[dict[str, Any], ...] = ()


def read_line(line: bytes, bound: int) -> ReadLine:
    """Judge ``line``, which has no LF; ``bound`` is ``max_response_bytes``."""
    faults: list[tuple[str, str]] = []
    shown = quote(line)
    if len(line) > bound:
        faults.append(
            ("odek.server.line-bound", f"a line of {len(line)} bytes, max_response_bytes is {bound}: {shown}")
        )
    if line.startswith(_BOM):
        faults.append(("odek.transport.byte-order-mark", f"a byte order mark: {shown}"))
        line = line.removeprefix(_BOM)
    line = line.strip(WHITE_SPACE)
    if not line:
        return ReadLine(tuple(faults))
    value = decode_line(line)
    if isinstance(value, Junk):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            faults.append(("odek.transport.invalid-utf8", f"byte {error.start} is not UTF-8: {shown}"))
            value = _guess(line)
        else:
            rule = _LINE if line.startswith((b"{", b"[")) else "odek.transport.stdout-only-protocol"
            faults.append((rule, f"{value.reason}: {shown}"))
            value = _guess(line) if rule == _LINE else None
    elif not isinstance(value, (dict, list)):
        faults.append(("odek.transport.stdout-only-protocol", f"{json_type(value)} is no message: {shown}"))
    if isinstance(value, list):
        faults.append(("odek.transport.batch", f"an array of {len(value)}: {shown}"))
    messages = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
    for message in messages:
        fault = _envelope_fault(message)
        if fault is not None:
            faults.append((fault[0], f"{fault[1]}: {shown}"))
    return ReadLine(tuple(faults), tuple(messages))


def _envelope_fault(message: dict[str, Any]) -> tuple[str, str] | None:
    if message.get("jsonrpc") != "2.0":
        return "odek.server.jsonrpc", 'jsonrpc must be "2.0"'
    if "method" in message:
        if not isinstance(message["method"], str):
            return "odek.server.answer-shape", "method must be a string"
        if "result" in message or "error" in message:
            return "odek.server.answer-shape", "a method beside a result or an error"
        return None
    if ("result" in message) == ("error" in message):
        return "odek.server.answer-shape", "an answer has exactly one of result and error"
    if "error" not in message:
        return None
    error = message["error"]
    if not isinstance(error, dict):
        return "odek.server.error-shape", f"error must be an object, not {json_type(error)}"
    for key, kind in (("code", int), ("message", str)):
        if type(error.get(key)) is not kind:
            return "odek.server.error-shape", f"error.{key} must be {'an integer' if kind is int else 'a string'}"
    return None


def _guess(line: bytes) -> Any:
    try:
        return json.JSONDecoder(strict=False).raw_decode(line.decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None
