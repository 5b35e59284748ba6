"""What happened between a host and those around it, as entries in order, and how that reads as text.

A sequence is what failure messages and reports show: one line for each thing that happened, with when, who to whom,
what, and a short payload, readable at 100 columns. What somebody said in words (an error, a line of stderr, a
diagnostic, the reason of a crash) is shown whole, on further lines where it is long.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import frozen

from broker.limits import MAX_SHOWN_ENTRIES, MAX_SHOWN_TEXT_CHARS, SEQUENCE_COLUMNS
from broker.wire.quoting import escape


class SequenceError(AssertionError):
    """An assertion that failed; its message shows the sequence of what happened."""


Kind: TypeAlias = Literal["frame", "bus", "notice", "call", "fault"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
HOST: Final = "host"
BEFORE_ALL: Final = -1
"""The place of a mark above the first entry."""
_FRAME_COLUMNS: Final = 13
_MIN_PAYLOAD_COLUMNS: Final = 24
_MEMBER_COLUMNS: Final = 16
_TEXT_INDENT: Final = 7
# Members that say most about a message are shown before others.
_TELLING: Final = frozenset({"name", "arguments", "payload", "kind", "state", "status", "reason", "code", "message"})


@frozen
class Entry:
    """One thing that happened, ``at_ms`` milliseconds after the session was opened.

    ``kind`` says what ``what`` holds: ``frame``, a message of a wire (its method, ``result`` or ``error``);
    ``bus``, a record of the bus (its class in lower case); ``notice``, one of the session, which has no ``target`` (the
    new state, ``started``, ``exited``, ``catalogue``, or the source of a diagnostic); ``call``, a tool call of the test
    (``call``, ``returned`` or ``raised``); ``fault``, one that was injected (its kind). ``payload`` is the message's
    params, result or error, the event's payload, or the facts of the record.
    """

    at_ms: int
    kind: Kind
    source: str
    target: str
    what: str
    payload: Any = None
    id: int | str | None = None
    note: str = ""

    def __str__(self) -> str:
        return render([self])


@frozen
class Mark:
    """How one line of a rendered sequence is marked: a sign in its first column, and text below it."""

    sign: str
    text: str = ""

    def with_text(self, text: str) -> Mark:
        """The same with a line more."""
        return Mark(self.sign, f"{self.text}\n{text}" if self.text else text)


def render(entries: Sequence[Entry], marks: Mapping[int, Mark] | None = None, *, limit: int = MAX_SHOWN_ENTRIES) -> str:
    """The entries as text, one line each but for long texts, ``marks`` (by index) in the first column.

    Of more than ``limit`` entries the first few and the last are shown, and those that are marked.
    """
    if not entries:
        return "   (nothing happened)"
    marks = marks or {}
    shown = _shown(len(entries), marks, limit)
    rows = {index: _cells(entries[index]) for index in shown}
    widths = [max(len(row[column]) for row in rows.values()) for column in range(4)]
    widths = [min(width, most) for width, most in zip(widths, (12, 16, 16, 40), strict=True)]
    payload_columns = max(_MIN_PAYLOAD_COLUMNS, SEQUENCE_COLUMNS - sum(widths) - _FRAME_COLUMNS)
    above = marks[BEFORE_ALL].text.splitlines() if BEFORE_ALL in marks else []
    lines = [f"   {part}" for part in above]
    before = -1
    for index in shown:
        if index != before + 1:
            lines.append(f"   ... {index - before - 1} more ...")
        before = index
        mark = marks.get(index, Mark(" "))
        row = rows[index]
        one, other, said = (cut(text, width).ljust(width) for text, width in zip(row[1:4], widths[1:], strict=True))
        arrow = "->" if entries[index].target else "  "
        line = f"{mark.sign:<2} {row[0]:>{widths[0]}}  {one} {arrow} {other}  {said}  "
        if (text := _words(entries[index])) is not None:
            first, *more = _wrapped(text, len(line), widths[0] + _TEXT_INDENT)
            lines.append((line + first).rstrip())
            lines += more
        else:
            lines.append((line + brief(entries[index].payload, payload_columns)).rstrip())
        lines += [f"   {' ' * widths[0]}  {part}" for part in mark.text.splitlines()]
    return "\n".join(lines)


def read_message(message: Any) -> tuple[str, Any, int | str | None]:
    """What a message of a wire is (its method, ``result``, ``error`` or ``garbage``), its payload, and its id."""
    if not isinstance(message, dict):
        return "garbage", message, None
    message_id = message.get("id")
    if type(message_id) not in (int, str):
        message_id = None
    method = message.get("method")
    if type(method) is str:
        return method, message.get("params"), message_id
    what = "error" if "error" in message else "result"
    return what, message.get(what), message_id


class Conversation:
    """Reads the messages that pass between a host and one process, and knows what an answer answers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: dict[tuple[bool, int | str], str] = {}

    def read(self, message: Any, *, heard: bool, at_ms: int) -> Entry:
        """The entry of a message that the process ``heard``, or sent."""
        source, target = (HOST, self._name) if heard else (self._name, HOST)
        what, payload, message_id = read_message(message)
        note = ""
        if message_id is not None and "method" in message:
            self._asked[heard, message_id] = what
        elif message_id is not None and (asked := self._asked.pop((not heard, message_id), None)) is not None:
            note = f"of {asked}"
        return Entry(at_ms, "frame", source, target, what, payload, message_id, note)


def show(value: Any) -> str:
    """A value on one line: text as it is, nothing for None, anything else as a literal."""
    if value is None:
        return ""
    return escape(value) if isinstance(value, str) else literal(value)


def literal(value: Any) -> str:
    """A value on one line as JSON, or as Python shows it where it is none."""
    try:
        return escape(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr))
    except RecursionError:
        return "(nested too deep to be shown)"
    except (TypeError, ValueError):
        return escape(repr(value))


def brief(value: Any, columns: int) -> str:
    """A value within so many columns: of an object as many members as fit, the most telling first."""
    whole = show(value)
    if len(whole) <= columns or not isinstance(value, Mapping):
        return cut(whole, columns)
    members = [(key not in _TELLING, f'"{key}":{cut(literal(item), _MEMBER_COLUMNS)}') for key, item in value.items()]
    shown = ""
    for _, member in sorted(members, key=lambda pair: (pair[0], len(pair[1]))):
        if len(shown) + len(member) > columns - len("{,...}"):
            break
        shown += f"{member},"
    return f"{{{shown}...}}" if shown else cut(whole, columns)


def cut(text: str, columns: int) -> str:
    """``text`` within so many columns."""
    return text if len(text) <= columns else text[: columns - 3] + "..."


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Lines of a word and what it stands for, aligned."""
    pairs = list(rows)
    width = max((len(word) for word, _ in pairs), default=0)
    return "\n".join(f"{word:<{width}}  {text}".rstrip() for word, text in pairs)


def _words(entry: Entry) -> str | None:
    """The text of an entry that somebody wrote for people; ``None`` for a payload."""
    told = entry.kind == "notice" or (entry.kind == "call" and entry.what == "raised")
    return entry.payload if told and isinstance(entry.payload, str) else None


def _wrapped(text: str, column: int, indent: int) -> list[str]:
    """The lines of a text that begins at ``column`` of the first one, and at ``indent`` of the others."""
    if len(text) > MAX_SHOWN_TEXT_CHARS:
        half = MAX_SHOWN_TEXT_CHARS // 2
        text = f"{text[:half]} [{len(text) - 2 * half} characters] {text[-half:]}"
    first, *more = [escape(line, max_chars=8 * MAX_SHOWN_TEXT_CHARS) for line in text.splitlines() or [""]]
    if column > SEQUENCE_COLUMNS - _MIN_PAYLOAD_COLUMNS:
        return ["", *_filled(first, indent, indent), *(part for line in more for part in _filled(line, indent, indent))]
    begun = _filled(first, column, indent) or [""]
    return [begun[0][column:], *begun[1:], *(part for line in more for part in _filled(line, indent, indent))]


def _filled(line: str, first: int, others: int) -> list[str]:
    return textwrap.wrap(
        line,
        SEQUENCE_COLUMNS,
        initial_indent=" " * first,
        subsequent_indent=" " * others,
        break_on_hyphens=False,
    )


def _cells(entry: Entry) -> tuple[str, str, str, str]:
    what = entry.what if entry.id is None else f"{entry.what} #{entry.id}"
    if entry.note:
        what = f"{what} {entry.note}"
    return f"{entry.at_ms} ms", entry.source, entry.target, what


def _shown(count: int, marks: Mapping[int, Mark], limit: int) -> list[int]:
    if count <= limit:
        return list(range(count))
    head = limit // 4
    return sorted(
        {*range(head), *range(count - (limit - head), count), *(index for index in marks if 0 <= index < count)}
    )
