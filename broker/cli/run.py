"""``broker run``: start extensions in one session and show topics, subscriptions and events as they happen."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from attrs import frozen

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.cli import providers, records
from broker.cli.arguments import check_arguments, json_argument
from broker.cli.exit_codes import FAILURE, OK, SETUP
from broker.cli.interrupts import interrupts
from broker.cli.recording import Recording
from broker.cli.settling import Activity
from broker.cli.sources import Source, load_all, start
from broker.cli.views import StoppingView, View, make_view
from broker.errors import BrokerError, SetupError, UsageError
from broker.host import Health, HostServices, ProviderRegistry
from broker.wire.odek.events.run import OpenCall

_REFRESH_SECONDS = 0.25


async def run(given: argparse.Namespace) -> int:
    """Carry out ``broker run``; gives the exit status."""
    calls = [(extension, tool, _arguments("--call", text)) for extension, tool, text in given.calls]
    asks = [(provider, model, _arguments("--ask", text)) for provider, model, text in given.asks]
    sources, warnings = load_all(given.paths)
    unknown = sorted({extension for extension, _, _ in calls} - {source.name for source in sources})
    if unknown:
        raise UsageError(f"--call names {unknown[0]!r}, which is not among the extensions")
    by_name = {source.name: source for source in sources}
    for extension, _, arguments in calls:
        check_arguments(by_name[extension], arguments)
    work = _Work(calls, asks, given.duration)
    recording = Recording(given, calls=len(calls))
    try:
        status = await _run(given, sources, warnings, work, recording)
    except BaseException as error:
        recording.end(error)
        raise
    recorded = recording.end(None if status == OK else BrokerError("an extension or a call failed"))
    return status if recorded else status or FAILURE


async def _run(
    given: argparse.Namespace,
    sources: list[Source],
    warnings: list[tuple[str, str]],
    work: _Work,
    recording: Recording,
) -> int:
    stop = asyncio.Event()
    view = StoppingView(make_view(as_json=given.json), stop.set)
    failures: list[str] = []
    unstartable: list[str] = []
    with interrupts(stop.set):
        try:
            registry = ProviderRegistry()
            async with AsyncHost(services=HostServices(providers=registry)) as host:
                session = await host.open_session(given.workspace)
                recording.watch(session)
                activity = Activity()
                _connect(session, view, activity, registry)
                for name, warning in warnings:
                    view.show(records.diagnostic(name, warning))
                serving = _serve(session, view, activity, sources, work, failures, unstartable, recording)
                await _until(stop, serving, recording.enforce_runtime())
                health = {end.name: end.health for end in session.session.extensions.values()}
                health.update({end.name: end.health for end in session.session.servers.values()})
                unwell = (Health.CRASHED, Health.PARKED, Health.BACKOFF)
                failures += [name for name, state in health.items() if state in unwell]
                await session.aclose()
        finally:
            view.close()
    if view.failure is not None:
        raise view.failure
    if unstartable and len(unstartable) == len(sources):
        return SETUP
    return FAILURE if failures else OK


@frozen
class _Work:
    """What is to be done once the bus has come to rest, and how long the run takes."""

    calls: list[tuple[str, str, Any]]
    asks: list[tuple[str, str, Any]]
    duration: float | None


def _connect(session: AsyncSession, view: View, activity: Activity, registry: ProviderRegistry) -> None:
    def show(record: dict[str, Any] | None) -> None:
        if record is not None:
            activity.note()
            view.show(record)

    session.add_observer(lambda notice: show(records.from_notice(notice)))

    session.bus.add_trace(lambda record: show(records.from_trace(record)))
    providers.watch(registry, show)


async def _serve(
    session: AsyncSession,
    view: View,
    activity: Activity,
    sources: list[Source],
    work: _Work,
    failures: list[str],
    unstartable: list[str],
    recording: Recording,
) -> None:
    loop = asyncio.get_running_loop()
    refreshing = asyncio.create_task(_refresh(session, view))
    try:
        results = await asyncio.gather(*(start(session, source) for source in sources), return_exceptions=True)
        for source, result in zip(sources, results, strict=True):
            if isinstance(result, BrokerError):
                failures.append(source.name)
                if isinstance(result, SetupError):
                    unstartable.append(source.name)
                view.show(records.diagnostic(source.name, f"start failed: {result}"))
            elif isinstance(result, BaseException):
                raise result
        if len(failures) == len(sources):
            return
        end = None if work.duration is None else loop.time() + work.duration
        if work.calls or work.asks:
            await activity.settle(None if work.duration is None else work.duration * 0.8)
            for extension, tool, arguments in work.calls:
                opened = recording.claim_call(extension, tool, arguments)
                if not await call_once(session, view, extension, tool, arguments, opened=opened):
                    failures.append(extension)
                recording.call_ended()
            for provider, model, request in work.asks:
                if not await providers.ask(session, view, provider, model, request):
                    failures.append(provider)
        if end is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(max(0, end - loop.time()))
    finally:
        refreshing.cancel()
        view.refresh(session.bus.statistics())


async def call_once(
    session: AsyncSession,
    view: View,
    extension: str,
    tool: str,
    arguments: Any,
    timeout: float | None = None,
    *,
    opened: OpenCall | None = None,
) -> bool:
    """Call a tool and show the answer; whether it succeeded. ``opened`` is told how it ended."""
    failure: BaseException | None = None
    try:
        if extension in session.session.servers:
            output = await session.call_server(extension, tool, arguments, timeout=timeout)
            record = records.from_output(extension, tool, output)
        else:
            record = records.from_result(
                extension, tool, await session.call(extension, tool, arguments, timeout=timeout)
            )
    except BrokerError as error:
        failure = error
        record = records.from_error(extension, tool, error)
    except asyncio.CancelledError as error:
        if opened is not None:
            opened.failed(error)
        raise
    view.show(record)
    if opened is not None and record["ok"]:
        text = "".join(part.get("text", "") for part in record["content"])
        opened.completed(text, artifact_count=len(record.get("artifacts", ())))
    elif opened is not None:
        opened.failed(failure)
    return bool(record["ok"])


async def _refresh(session: AsyncSession, view: View) -> None:
    while True:
        view.refresh(session.bus.statistics())
        await asyncio.sleep(_REFRESH_SECONDS)


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


def _arguments(option: str, text: str) -> Any:
    try:
        return json_argument(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{option}: {error}") from None
