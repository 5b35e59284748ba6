"""``broker replay``: play a recorded session again, show what happens, and say where the host differs."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any, NoReturn

from broker.cli import providers
from broker.cli.exit_codes import FAILURE, OK
from broker.cli.inspecting import InspectorView
from broker.cli.interrupts import interrupts
from broker.cli.views import JsonView, PlainView, StoppingView, View
from broker.errors import UsageError
from broker.host import HostServices, ProviderRegistry, records
from broker.testing.replay import Difference, Replay


async def replay(given: argparse.Namespace) -> int:
    """Carry out ``broker replay``; gives the exit status: 1 when the host said anything else than it did."""
    registry = ProviderRegistry()
    replayed = Replay.read(given.path, services=HostServices(providers=registry))
    inspector = InspectorView() if given.inspect else None
    stop = asyncio.Event()
    view = StoppingView(inspector or _view(as_json=given.json), stop.set)
    _connect(replayed, view, registry)
    speed = given.speed or (1.0 if inspector is not None else None)
    with interrupts(stop.set):
        try:
            if inspector is not None:
                inspector.open(replayed.session, _no_call, on_end=stop.set)
            playing = asyncio.ensure_future(_play(replayed, view, speed))
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait((playing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                playing.cancel()
            elif inspector is not None:
                await stopping
            stopping.cancel()
            await asyncio.gather(playing, stopping, return_exceptions=True)
        finally:
            view.close()
            if inspector is not None:
                await inspector.ended()
    if view.failure is not None:
        raise view.failure
    if not playing.cancelled():
        playing.result()
    return FAILURE if replayed.differences or playing.cancelled() else OK


async def _play(replayed: Replay, view: View, speed: float | None) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    shown = 0
    for entry in replayed.play():
        shown = _show(replayed, view, shown)
        behind = 0.0 if speed is None else begun + entry.at_ms / 1000 / speed - loop.time()
        await asyncio.sleep(max(0.0, behind))
    _show(replayed, view, shown)
    view.show(
        {
            "kind": "replayed",
            "entries": len(replayed.entries),
            "compared": replayed.compared,
            "differences": len(replayed.differences),
            "complete": replayed.complete,
        }
    )


def _show(replayed: Replay, view: View, shown: int) -> int:
    for difference in replayed.differences[shown:]:
        view.show(_record(difference))
    return len(replayed.differences)


def _record(difference: Difference) -> dict[str, Any]:
    record: dict[str, Any] = {
        "kind": "difference",
        "extension": difference.name,
        "generation": difference.number,
        "path": difference.path,
        "reason": difference.problem,
    }
    if difference.entry is not None:
        entry = difference.entry
        record.update(line=entry.line_number, at_ms=entry.at_ms, what=entry.what)
    return record


def _connect(replayed: Replay, view: View, registry: ProviderRegistry) -> None:
    def show(record: dict[str, Any] | None) -> None:
        if record is not None:
            view.show(record)

    replayed.session.add_observer(lambda notice: show(records.from_notice(notice)))
    replayed.session.bus.add_trace(lambda record: show(records.from_trace(record)))
    providers.watch(registry, show)


def _view(*, as_json: bool) -> View:
    # What was is told line by line: a table of what is would be over before anybody saw it.
    return JsonView(sys.stdout, sys.stderr) if as_json else PlainView(sys.stdout, sys.stderr)


async def _no_call(extension: str, tool: str, arguments: Any) -> NoReturn:
    raise UsageError("a replay calls what was called, and nothing else")
