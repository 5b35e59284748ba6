"""The host's requests at work: each is answered exactly once, also when it is cancelled, late, or fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from attrs import define

from broker.errors import BrokerError, CancelledError, InvalidParamsError, ResourceExhaustedError, ResultError
from broker.extension.context import Context
from broker.extension.events import HostCall
from broker.extension.handlers import Handler
from broker.extension.logs import describe_failure
from broker.extension.results import ToolFailureError, cut_texts, disposition_json, failure_json, result_json
from broker.extension.workers import HandlerExitError, is_closed, was_cancelled
from broker.limits import HANDLER_CANCEL_MS, MAX_FAILURE_CHARS, MAX_REFUSAL_CHARS
from broker.wire.octet.models import SessionEndHook, SessionStartHook
from broker.wire.signature import ArgumentError

if TYPE_CHECKING:
    from broker.extension.runtime import Runtime


@define(eq=False)
class _Work:
    call: HostCall
    context: Context
    handler: Handler | None
    task: asyncio.Task[None] | None = None
    started: bool = False
    timer: asyncio.TimerHandle | None = None
    grace: asyncio.TimerHandle | None = None


class CallTable:
    """The open calls of one :class:`~broker.extension.runtime.Runtime`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[HostCall, _Work] = {}
        self._streams: dict[str, asyncio.Task[None]] = {}

    def begin(self, call: HostCall) -> None:
        """Start working on a request of the host."""
        runtime = self._runtime
        work = _Work(call, Context(runtime, call), runtime.app.handlers.get(_key(call)))
        self._open[call] = work
        timeout_ms = work.handler.timeout_ms if work.handler is not None else None
        if timeout_ms is not None:
            work.timer = runtime.loop.call_later(timeout_ms / 1000, self._time_out, work, timeout_ms)
        work.task = runtime.spawn(self._run(work), until_end=False)

    def cancel(self, call: HostCall) -> None:
        """The host gives a call up: an ``async`` handler is cancelled, a plain one may notice; then it is answered."""
        work = self._open.get(call)
        if work is None or work.task is None:
            return
        if not work.started:
            # A task that is cancelled before its first step never gets to answer.
            work.task.cancel()
            self._settle_cancelled(work)
            self._runtime.flush()
            return
        loop = self._runtime.loop
        if work.handler is None or work.handler.is_async:
            work.task.cancel()
        if work.grace is None:
            work.grace = loop.call_later(HANDLER_CANCEL_MS / 1000, self._give_up, work)

    def cancel_all(self, reason: str) -> list[asyncio.Task[None]]:
        """Cancel everything that is open; gives the tasks that are to end."""
        for work in list(self._open.values()):
            if not work.call.cancelled:
                work.call.cancelled, work.call.reason = True, reason
            self.cancel(work.call)
        for task in self._streams.values():
            task.cancel()
        return [work.task for work in self._open.values() if work.task is not None] + list(self._streams.values())

    def answer_rest(self) -> None:
        """Answer what would not end."""
        for work in list(self._open.values()):
            self._give_up(work)

    def cancel_stream(self, stream_id: str) -> None:
        """The host reads a provider stream no further."""
        if task := self._streams.pop(stream_id, None):
            task.cancel()

    def add_stream(self, stream_id: str, task: asyncio.Task[None]) -> None:
        """Keep the task of an accepted stream, to cancel it."""
        self._streams[stream_id] = task

        def forget(ended: asyncio.Task[None]) -> None:
            if self._streams.get(stream_id) is ended:
                del self._streams[stream_id]

        task.add_done_callback(forget)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _run(self, work: _Work) -> None:
        call = work.call
        work.started = True
        try:
            result = await self._perform(work)
        except KeyboardInterrupt:
            raise
        except asyncio.CancelledError as error:
            if was_cancelled():
                self._settle_cancelled(work)
            else:
                self._fail(work, f"{_title(call)} awaited something that was cancelled", error)
        except CancelledError as error:
            if call.cancelled:
                self._settle_cancelled(work)
            else:
                self._fail(work, str(error), error)
        except (ToolFailureError, ArgumentError, BrokerError) as error:
            self._fail(work, str(error), error)
        except BaseException as caught:
            if isinstance(caught, GeneratorExit) and is_closed(work.task):
                raise
            raised = caught.raised if isinstance(caught, HandlerExitError) else caught
            # The text of a foreign error may hold anything; its type is what the host gets. SystemExit is no
            # exception: a handler does not end the process, and its caller must not wait for ever.
            self._runtime.log(describe_failure(_title(call), raised))
            self._fail(work, f"{_title(call)} failed: {type(raised).__name__}", raised)
        else:
            self._succeed(work, result)
        finally:
            self._runtime.flush()

    async def _perform(self, work: _Work) -> Any:
        """The JSON of the call's result."""
        call, handler, runtime = work.call, work.handler, self._runtime
        api = runtime.app.api
        if call.method == "tool/call":
            if handler is None or handler.signature is None:
                raise ToolFailureError(f"there is no tool {call.model.name!a:.80}")
            arguments = handler.signature.bind(call.model.arguments)
            value = await runtime.invoke(handler, context=work.context, **arguments)
            try:
                return result_json(value, api=api)
            except ResultError as error:
                raise ToolFailureError(f"{_title(call)}: {error}") from None
        if call.method == "hook/run":
            payload = call.params.get("payload")
            if isinstance(call.model, SessionStartHook | SessionEndHook):
                payload = call.model.payload
            given = None if handler is None else await runtime.invoke(handler, payload, context=work.context)
            if api == "0.3":
                return {"disposition": disposition_json(given)}
            from broker.extension.answers import hook_json

            return hook_json(given)
        if handler is None:
            if call.method in _EMPTY:
                return _EMPTY[call.method]
            raise InvalidParamsError(f"{call.method}: there is nothing here that answers it")
        if call.method == "provider/stream":
            from broker.extension.provider_stream import accept

            return await accept(runtime, self, handler, call.model)
        if call.method in ("migration/detect", "migration/import"):
            from broker.extension.answers import record_json

            return record_json(call.method, await runtime.invoke(handler, call.model, context=work.context))
        from broker.extension.answers import text_json

        argument = call.params.get(_ARGUMENTS.get(call.method, ""), call.params)
        return text_json(call.method, argument, await runtime.invoke(handler, argument, context=work.context))

    def _succeed(self, work: _Work, result: Any) -> None:
        call, connection = work.call, self._runtime.connection
        if not self._is_open(work):
            return
        try:
            connection.answer(call, result)
        except ResourceExhaustedError as error:
            truncate = work.handler is not None and work.handler.truncate
            if truncate and error.observed is not None and error.maximum is not None:
                try:
                    connection.answer(call, cut_texts(result, error.observed - error.maximum))
                except BrokerError as second:
                    self._fail(work, str(second), second)
            else:
                self._fail(work, f"{_title(call)}: {error}", error)
        except BrokerError as error:
            self._fail(work, f"{_title(call)}: {error}", error)
        self._close(work)

    def _fail(self, work: _Work, text: str, error: BaseException) -> None:
        call, connection = work.call, self._runtime.connection
        if not self._is_open(work):
            return
        if call.method == "tool/call":
            try:
                connection.answer(call, failure_json(text[:MAX_FAILURE_CHARS]))
            except ResourceExhaustedError as over:
                connection.refuse(call, over.name, {"reason": str(over)})
        else:
            name = error.name if isinstance(error, BrokerError) else "internal_error"
            if call.method == "hook/run":
                self._runtime.log(f"{_title(call)}: {text}")
            connection.refuse(call, name, {"reason": text[:MAX_REFUSAL_CHARS]})
        self._close(work)

    def _settle_cancelled(self, work: _Work) -> None:
        if not self._is_open(work):
            return
        if work.context.timed_out and work.handler is not None:
            self._fail(work, f"{_title(work.call)} took more than {work.handler.timeout_ms} ms", TimeoutError())
            return
        self._runtime.connection.answer_cancelled(work.call)
        self._close(work)

    def _time_out(self, work: _Work, timeout_ms: int) -> None:
        if not self._is_open(work):
            return
        work.context.timed_out = True
        if work.handler is not None and work.handler.is_async:
            self.cancel(work.call)
        else:
            # A plain function cannot be stopped; nobody gains by waiting for it.
            self._give_up(work)

    def _give_up(self, work: _Work) -> None:
        """Answer without the handler, which goes on for nobody."""
        if self._is_open(work):
            if not work.context.timed_out:
                self._runtime.log(f"{_title(work.call)} goes on after it was cancelled; it was answered without it")
            self._settle_cancelled(work)
            self._runtime.flush()
            if work.task is not None:
                work.task.cancel()

    def _is_open(self, work: _Work) -> bool:
        return work.call in self._open and not work.call.answered

    def _close(self, work: _Work) -> None:
        self._open.pop(work.call, None)
        for timer in (work.timer, work.grace):
            if timer is not None:
                timer.cancel()


_EMPTY: dict[str, Any] = {
    "context/collect": [],
    "status/collect": None,
    "menu/collect": {"items": []},
    "tool/render": {"segments": []},
    "resource/dispose": {},
}
_ARGUMENTS = {"command/execute": "arguments", "context/collect": "prompt", "status/collect": "surface"}


def _title(call: HostCall) -> str:
    """What a person calls this call."""
    if call.method == "tool/call":
        return str(call.model.name)
    if call.method == "hook/run":
        return f"hook {call.params.get('hook')!s:.80}"
    return call.method


def _key(call: HostCall) -> str:
    """Where the handler of this call is kept."""
    params = call.params
    if call.method == "tool/call":
        return f"tool {call.model.name}"
    kind, member = {
        "hook/run": ("hook", "hook"),
        "command/execute": ("command", "name"),
        "status/collect": ("status", "surface"),
        "tool/render": ("render", "name"),
    }.get(call.method, ("", ""))
    if kind:
        return f"{kind} {params.get(member)}"
    return {"context/collect": "context", "menu/collect": "menu", "provider/stream": "provider stream"}.get(
        call.method, f"serves {call.method}"
    )
