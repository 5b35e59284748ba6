"""Wrong use that is found while a program is still being read: one line about the author's code, no traceback of ours.

A :class:`~broker.errors.UsageError` that a decorator raises at the top level of a program says all that its author
needs, what is wrong and what to write instead; only the line where it stands is missing. Every other exception, and
one that is raised anywhere else, is shown as ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Final

from broker.errors import UsageError

_OURS: Final = ("broker.", "attr.", "attrs.")
_IMPORTING: Final = "importlib."


def show_briefly(caller: FrameType | None) -> None:
    """Have Python show such an error on one line, if ``caller`` is a program, or a module that one is importing."""
    other = sys.excepthook
    if not (isinstance(other, partial) and other.func is _show) and _is_read_by_program(caller):
        sys.excepthook = partial(_show, other)


def one_line(error: BaseException, trace: TracebackType | None) -> str | None:
    """The line that says it, or ``None`` for what is to be shown with its traceback."""
    if type(error) is not UsageError:
        return None
    theirs: TracebackType | None = None
    ours = False
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__"))
        ours = f"{name}.".startswith(_OURS)
        if not ours and not f"{name}.".startswith(_IMPORTING):
            if trace.tb_frame.f_code.co_name != "<module>":
                return None
            theirs = trace
        trace = trace.tb_next
    if theirs is None or not ours:
        return None
    return f"{_shown(theirs.tb_frame.f_code.co_filename)}:{theirs.tb_lineno}: UsageError: {error}"


def _show(
    other: Callable[..., object], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    line = one_line(error, trace)
    if line is None:
        other(kind, error, trace)
    elif sys.stderr is not None:
        sys.stderr.write(f"{line}\n")


def _is_read_by_program(frame: FrameType | None) -> bool:
    """Whether there is nothing but statements of modules between here and the program."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if not f"{name}.".startswith(_IMPORTING):
            if frame.f_code.co_name != "<module>":
                return False
            if name == "__main__":
                return "__file__" in frame.f_globals
        frame = frame.f_back
    return False


def _shown(file: str) -> str:
    """A path as it is shortest to type from here."""
    try:
        near = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if near.startswith(os.pardir) else near
