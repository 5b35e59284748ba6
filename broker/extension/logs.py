"""Texts for stderr: what went wrong in an author's function, within a bound."""

from __future__ import annotations

import traceback
from functools import partial
from types import TracebackType
from typing import Any, Final

from broker.errors import BrokerError
from broker.limits import MAX_LOG_CHARS

_OWN: Final = ("broker.extension.", "broker.testing.", "asyncio.", "concurrent.futures.")


def bounded(text: str) -> str:
    """``text`` with its middle left out where it is too long; the end of a traceback says most."""
    if len(text) <= MAX_LOG_CHARS:
        return text
    half = MAX_LOG_CHARS // 2 - 16
    return f"{text[:half]}\n[{len(text) - 2 * half} characters]\n{text[-half:]}"


def describe_callable(function: Any) -> str:
    """What a function is called, through whatever it is wrapped in."""
    while isinstance(function, partial):
        inner = next((item for item in function.args if callable(item)), None)
        function = inner if inner is not None and not hasattr(function.func, "__code__") else function.func
    return str(getattr(function, "__name__", type(function).__name__))


def describe_failure(what: str, error: BaseException) -> str:
    """What an author's function raised: the traceback from its own code on, or the text alone of a broker error."""
    if isinstance(error, BrokerError):
        return bounded(f"{what} failed: {error}")
    # The frames that led from the kit to the function are of no interest to its author.
    trace: TracebackType | None = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_OWN):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(error), error, trace)
    except Exception:  # an exception whose text cannot be had
        lines = [type(error).__name__]
    return bounded(f"{what} failed:\n{''.join(lines).rstrip()}")
