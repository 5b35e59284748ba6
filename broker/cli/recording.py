"""What a run leaves behind and may use: its event stream, its recorded frames, its budget.

Files are opened before anything starts, and closed when all has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import Any, NoReturn

from broker.adapters.aio import AsyncSession
from broker.adapters.event_emitter import EventEmitter
from broker.adapters.event_log import EventLog
from broker.adapters.event_retry import RetryingLog
from broker.adapters.frame_log import FrameLog
from broker.errors import EventLogError, UsageError
from broker.host import life
from broker.limits import EMITTER_CLOSE_MS, RUNTIME_LOOK_MS
from broker.wire.odek.budget.budget import Budget
from broker.wire.odek.budget.config import Limits
from broker.wire.odek.events.redaction import Redactor, secret_values
from broker.wire.odek.events.run import ModelToolCall, OpenCall, RunEvents
from broker.wire.odek.events.types import Payload
from broker.wire.quoting import escape

_NO_MODEL = "none"


class Recording:
    """What one run tells and may use. Without ``--events-jsonl`` it tells nobody, and still counts."""

    def __init__(self, given: argparse.Namespace, *, calls: int) -> None:
        limits = Limits(max_runtime_seconds=given.max_runtime, max_tool_calls=given.max_tool_calls)
        self.budget: Budget = Budget(limits)
        if given.events_include_args and given.events is None:
            raise UsageError("--events-include-args needs --events-jsonl")
        self.frames: FrameLog | None = None
        if given.record is not None:
            self.frames = FrameLog(given.record)
        try:
            self._log = None if given.events is None else EventLog(given.events)
        except BaseException:
            if self.frames is not None:
                # Nothing is in it, and the next attempt would find it there already.
                self.frames.close()
            raise
        self._emitter: EventEmitter | None = None
        self._writer: RetryingLog | None = None
        self._iteration = 0
        self._complaints: list[str] = []
        if self._log is not None:
            self._writer = RetryingLog(self._log, report=self._report)
            redactor = Redactor(secret_values(os.environ))
            self._emitter = EventEmitter(self._writer, redactor=redactor, include_args=given.events_include_args)
        self.events: RunEvents = RunEvents(self._emit)
        self.events.started(model=_NO_MODEL, sandbox=False, max_iterations=calls)

    def watch(self, session: AsyncSession) -> None:
        """Tell of the session's extensions from now on."""
        if self._emitter is not None:
            self._emitter.session_id = session.session.session_id
            life.watch(session.session, self._emitter.emit)

    def claim_call(self, extension: str, tool: str, arguments: Any) -> OpenCall:
        """Count a tool call and tell of its start; raises :class:`~broker.errors.BudgetExceededError` instead."""
        self._iteration += 1
        self.budget.claim_tool_calls(1)
        raw = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        (call,) = self.events.tool_calls(self._iteration, [ModelToolCall(f"{extension}__{tool}", raw)])
        return call

    def call_ended(self) -> None:
        """The call that was claimed last is over."""
        self.events.iteration_completed(self._iteration, input_tokens=0, output_tokens=0, tools_called=1)

    async def enforce_runtime(self) -> NoReturn:
        """Raise :class:`~broker.errors.BudgetExceededError` once the run has had its time."""
        maximum = self.budget.limits.max_runtime_seconds
        while maximum is not None:
            self.budget.check_runtime()
            await asyncio.sleep(RUNTIME_LOOK_MS / 1000)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    def end(self, error: BaseException | None) -> bool:
        """Tell of the end and close the files; whether everything is in them. Complaints go to stderr."""
        if self.frames is not None:
            self.frames.close()
            if self.frames.failure is not None:
                self._complain(
                    f"{self.frames.path}: the recording ends after {self.frames.entries} entries: {self.frames.failure}"
                )
        if error is None:
            self.events.completed(input_tokens=0, output_tokens=0)
        else:
            self.events.failed(error)
        if self._emitter is None or self._writer is None or self._log is None:
            return not self._complaints
        self._writer.give_up()
        if not self._emitter.close(timeout=EMITTER_CLOSE_MS / 1000):
            self._complain("some events were still not written when the run ended")
        statistics = self._emitter.statistics()
        if statistics.dropped:
            self._complain(f"{statistics.dropped} events were dropped: they came faster than they could be written")
        if statistics.failures:
            self._complain(f"{statistics.failures} events were not written: {statistics.last_failure}")
        try:
            self._log.close()
        except EventLogError as failure:
            self._complain(str(failure))
        return not self._complaints

    def _emit(self, payload: Payload) -> None:
        if self._emitter is not None:
            self._emitter.emit(payload)

    def _report(self, error: EventLogError) -> None:
        # It is tried again; if that does not help in the end, end() says so.
        print(f"broker: {escape(str(error))}; trying again", file=sys.stderr, flush=True)

    def _complain(self, text: str) -> None:
        self._complaints.append(text)
        print(f"broker: {escape(text)}", file=sys.stderr, flush=True)
