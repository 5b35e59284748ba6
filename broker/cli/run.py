"""``broker run``: start extensions in one session and show topics, subscriptions and events as they happen."""

from __future__ import annotations

import argparse
import asyncio
import difflib
from typing import Any

from attrs import frozen

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.bus import trace
from broker.cli import providers
from broker.cli.arguments import check_arguments, option_json
from broker.cli.calling import call_once
from broker.cli.exit_codes import FAILURE, OK, SETUP
from broker.cli.inspecting import InspectorView
from broker.cli.interrupts import interrupts
from broker.cli.recording import Recording
from broker.cli.settling import Activity
from broker.cli.sources import Source, load_all, start
from broker.cli.views import StoppingView, View, make_view
from broker.errors import BrokerError, SetupError, UsageError
from broker.host import Health, HostServices, ProviderRegistry, records
from broker.limits import VIEW_REFRESH_MS

_UNWELL = (Health.CRASHED, Health.PARKED, Health.BACKOFF)


async def run(given: argparse.Namespace) -> int:
    """Carry out ``broker run``; gives the exit status."""
    calls = [(extension, tool, option_json("--call", text)) for extension, tool, text in given.calls]
    asks = [(provider, model, option_json("--ask", text)) for provider, model, text in given.asks]
    sources, warnings = load_all(given.paths)
    unknown = sorted({extension for extension, _, _ in calls} - {source.name for source in sources})
    if unknown:
        raise UsageError(f"--call names {unknown[0]!r}, which is not among the extensions")
    by_name = {source.name: source for source in sources}
    for extension, _, arguments in calls:
        check_arguments(by_name[extension], arguments)
    inspector = InspectorView() if given.inspect else None
    work = _Work(sources, calls, asks, given.duration)
    recording = Recording(given, calls=len(calls))
    try:
        status = await _run(given, warnings, work, recording, inspector)
    except BaseException as error:
        recording.end(error)
        raise
    recorded = recording.end(None if status == OK else BrokerError("an extension or a call failed"))
    return status if recorded else status or FAILURE


async def _run(
    given: argparse.Namespace,
    warnings: list[tuple[str, str]],
    work: _Work,
    recording: Recording,
    inspector: InspectorView | None,
) -> int:
    stop = asyncio.Event()
    view = StoppingView(inspector or make_view(as_json=given.json), stop.set)
    with interrupts(stop.set):
        try:
            registry = ProviderRegistry()
            async with AsyncHost(services=HostServices(providers=registry), tap=recording.frames) as host:
                session = await host.open_session(given.workspace)
                recording.watch(session)
                run = _Run(session, view, work, recording, registry)
                if inspector is not None:
                    inspector.open(session.session, run.call, on_end=stop.set)
                for name, warning in warnings:
                    view.show(records.diagnostic(name, warning))
                await _until(stop, run.serve(), recording.enforce_runtime())
                status = run.status()
                await session.aclose()
        finally:
            view.close()
            if inspector is not None:
                await inspector.ended()
    if view.failure is not None:
        raise view.failure
    return status


@frozen
class _Work:
    """What is started, what is done once the bus has come to rest, and how long the run takes."""

    sources: list[Source]
    calls: list[tuple[str, str, Any]]
    asks: list[tuple[str, str, Any]]
    duration: float | None


class _Run:
    """One run of a session: what was started, and what of it failed."""

    def __init__(
        self, session: AsyncSession, view: View, work: _Work, recording: Recording, registry: ProviderRegistry
    ) -> None:
        self._session = session
        self._view = view
        self._work = work
        self._recording = recording
        self._activity = Activity()
        self._failures: list[str] = []
        self._unstartable = 0
        self._declared: set[str] = set()
        session.add_observer(lambda notice: self._show(records.from_notice(notice)))
        session.bus.add_trace(self._trace)
        providers.watch(registry, self._show)

    async def serve(self) -> None:
        """Start everything, do the work, and stay for the duration; for ever when there is none."""
        loop = asyncio.get_running_loop()
        work = self._work
        refreshing = asyncio.create_task(self._refresh())
        try:
            await self._start()
            if len(self._failures) == len(work.sources):
                return
            end = None if work.duration is None else loop.time() + work.duration
            if work.calls or work.asks:
                await self._activity.settle(None if work.duration is None else work.duration * 0.8)
                for extension, tool, arguments in work.calls:
                    if not (await self.call(extension, tool, arguments))["ok"]:
                        self._failures.append(extension)
                for provider, model, request in work.asks:
                    if not await providers.ask(self._session, self._view, provider, model, request):
                        self._failures.append(provider)
            if end is None:
                await asyncio.Event().wait()
            else:
                await asyncio.sleep(max(0, end - loop.time()))
        finally:
            refreshing.cancel()
            self._view.refresh(self._session.bus.statistics())
            self._hint_at_misspelt_topics()

    async def call(self, extension: str, tool: str, arguments: Any) -> dict[str, Any]:
        """Call a tool within the budget and show the answer; gives its record.

        Raises :class:`~broker.errors.BudgetExceededError` when the budget has no call left.
        """
        opened = self._recording.claim_call(extension, tool, arguments)
        try:
            return await call_once(self._session, self._view, extension, tool, arguments, opened=opened)
        finally:
            self._recording.call_ended()

    def status(self) -> int:
        """The exit status of what happened so far."""
        session = self._session.session
        healths = [extension.health for extension in session.extensions.values()]
        healths += [server.health for server in session.servers.values()]
        if self._unstartable and self._unstartable == len(self._work.sources):
            return SETUP
        return FAILURE if self._failures or any(health in _UNWELL for health in healths) else OK

    async def _start(self) -> None:
        sources = self._work.sources
        results = await asyncio.gather(*(start(self._session, source) for source in sources), return_exceptions=True)
        for source, result in zip(sources, results, strict=True):
            if isinstance(result, BrokerError):
                self._failures.append(source.name)
                self._unstartable += isinstance(result, SetupError)
                self._view.show(records.diagnostic(source.name, f"start failed: {result}"))
            elif isinstance(result, BaseException):
                raise result

    def _trace(self, record: trace.Record) -> None:
        if isinstance(record, trace.Declared):
            self._declared.add(record.topic)
        self._show(records.from_trace(record))

    def _hint_at_misspelt_topics(self) -> None:
        """Tell of interests in topics that nobody ever declared, where one was declared that looks like it."""
        for peer in self._session.bus.statistics().peers:
            for topic in set(peer.pending) - self._declared:
                for meant in difflib.get_close_matches(topic, self._declared, n=1, cutoff=0.85):
                    hint = f"{topic} was never declared; did you mean {meant}?"
                    self._view.show(records.diagnostic(peer.name, hint))

    def _show(self, record: dict[str, Any] | None) -> None:
        if record is not None:
            self._activity.note()
            self._view.show(record)

    async def _refresh(self) -> None:
        while True:
            self._view.refresh(self._session.bus.statistics())
            await asyncio.sleep(VIEW_REFRESH_MS / 1000)


async def _until(stop: asyncio.Event, work: Any, limit: Any) -> None:
    """Run ``work`` until it ends, ``stop`` is set, or ``limit`` raises, whichever comes first."""
    working, limiting = asyncio.ensure_future(work), asyncio.ensure_future(limit)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, limiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (working, limiting):
            if task.done():
                await task
    finally:
        for task in (working, limiting, stopping):
            task.cancel()
        await asyncio.gather(working, limiting, stopping, return_exceptions=True)
