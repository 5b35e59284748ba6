"""One line of a server's output to one JSON value, strictly, and what can still be said about a line that is none.

Stricter than JSON's own grammar in three points: depth is bounded *before* parsing, so that no input reaches a parser's
recursion; a number that no double holds (``NaN``, ``1e999``, five thousand digits) and a lone surrogate are refused, so
that whatever was accepted can also be written again; and no member of a message's envelope may stand twice, because
two readers would disagree about which one counts.

A refused line that was otherwise built like an answer still names the request it was meant for, so that this caller
fails at once and not by its timeout. Time and memory are linear in the line, whatever it holds.

Source: odek notes, section 2.2; design, "Decisions on odek-extension/v1", D13.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
from attrs import frozen

from broker.limits import MAX_MESSAGE_DEPTH, MAX_OUTLINE_TOKENS

WHITE_SPACE: Final = b" \t\r\n"

_ENVELOPE: Final = ("jsonrpc", "id", "method", "params", "result", "error")
_QUOTED_NAMES: Final = tuple(f'"{name}"'.encode() for name in _ENVELOPE)
_ENVELOPE_NAME: Final = re.compile(b"|".join(_QUOTED_NAMES))
_BACKSLASH: Final = ord("\\")
_ESCAPED_LETTER: Final = b"\\u00"
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_TOKEN: Final = re.compile(_STRING.pattern + rb'|[\[\]{}:,]|[^\s"\[\]{}:,]++', re.DOTALL)
_INNERMOST: Final = re.compile(rb"\[:*+\]")
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ALL_BUT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b"[]{}:")
_OUR_ID: Final = re.compile(rb"[1-9][0-9]{0,15}")
_LONGEST_KEY: Final = max(len(name) for name in _ENVELOPE) * len(r"\u0000") + len('""')


@frozen
class Junk:
    """A line that is no message. ``answers``: the integer ids of requests that it was meant to answer."""

    reason: str
    answers: tuple[int, ...] = ()


def decode_line(line: bytes) -> Any:
    """The JSON value of ``line``, which has no LF and no white space around it, or :class:`Junk`."""
    if line.count(b"[") + line.count(b"{") > MAX_MESSAGE_DEPTH and is_deep(line):
        return Junk(f"more than {MAX_MESSAGE_DEPTH} nested containers", _meant_for(line))
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Junk(f"not JSON: {error}", _meant_for(line))
    if (_BACKSLASH in line and _ESCAPED_LETTER in line) or _loses_member(line, value):
        if type(value) is dict and _count_members(line) != len(value):
            return Junk("a member stands twice", _meant_for(line))
        if type(value) is list and _repeats_member(line):
            return Junk("a member of a message stands twice", _meant_for(line))
    return value


def is_deep(line: bytes) -> bool:
    """Whether containers are nested deeper than allowed. Brackets that do not match count as deep, or fail to parse."""
    brackets = _STRING.sub(b"", line).translate(_SQUARE, _ALL_BUT_BRACKETS)
    too_deep = b"[" * (MAX_MESSAGE_DEPTH + 1)
    for _ in range(MAX_MESSAGE_DEPTH):
        if too_deep in brackets:
            return True
        # The innermost containers go, so that each round lowers the depth by exactly one.
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            return False
        brackets = inner
    return bool(brackets)


def _loses_member(line: bytes, value: Any) -> bool:
    """Whether one of the envelope's names, written without escapes, is in ``line`` but no more in ``value``."""
    for name in _QUOTED_NAMES:
        if line.count(name) > 1:
            # A name deeper in the message is fine; each is in the value's own JSON as often as in the line.
            return len(_ENVELOPE_NAME.findall(orjson.dumps(value))) != len(_ENVELOPE_NAME.findall(line))
    return False


def _count_members(line: bytes) -> int:
    """How many members the object in ``line``, which is valid and not too deep, was written with."""
    structure = _STRING.sub(b"", line).translate(_SQUARE, _ALL_BUT_STRUCTURE)[1:-1]
    while b"[" in structure:
        structure = _INNERMOST.sub(b"", structure)
    return len(structure)


@frozen
class _Member:
    """A member of a message: its name, and the first token of its value."""

    name: str | None
    value: bytes


def _outline(line: bytes) -> list[list[_Member]] | None:
    """The members of each message in ``line``.

    ``None`` unless its brackets match from its first to its last byte, and within a bounded number of tokens.
    """
    if not line.endswith((b"}", b"]")):
        return None
    messages: list[list[_Member]] = []
    level = 2 if line.startswith(b"[") else 1
    depth = 0
    awaiting = False
    name: str | None = None
    previous = b""
    for count, match in enumerate(_TOKEN.finditer(line)):
        if count == MAX_OUTLINE_TOKENS or (count and not depth):
            return None
        token = match.group()
        if awaiting:
            messages[-1].append(_Member(name, token))
            awaiting = False
        if token in (b"{", b"["):
            depth += 1
            if depth == level and token == b"{":
                messages.append([])
        elif token in (b"}", b"]"):
            depth -= 1
        elif token == b":" and depth == level and messages:
            name, awaiting = _name(previous), True
        previous = token
    return None if depth else messages


def _name(key: bytes) -> str | None:
    """The envelope member that a key's bytes stand for, if it is one."""
    if len(key) > _LONGEST_KEY:
        return None
    try:
        name = orjson.loads(key)
    except orjson.JSONDecodeError:
        return None
    return name if name in _ENVELOPE else None


def _repeats_member(batch: bytes) -> bool:
    """Whether a message of the batch has an envelope member twice, or is too intricate to tell."""
    messages = _outline(batch)
    if messages is None:
        return True
    for members in messages:
        names = [member.name for member in members if member.name is not None]
        if len(set(names)) < len(names):
            return True
    return False


def _meant_for(line: bytes) -> tuple[int, ...]:
    """Ids of the answers in a line that was refused, where nothing else about them is in doubt."""
    found = []
    for members in _outline(line) or ():
        names = [member.name for member in members]
        ids = [member.value for member in members if member.name == "id"]
        answers = "method" not in names and ("result" in names or "error" in names)
        if answers and len(ids) == 1 and _OUR_ID.fullmatch(ids[0]):
            found.append(int(ids[0]))
    return tuple(found)
