"""``broker call``: start one extension, call one tool, print its answer."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from typing import Any

from broker.adapters.aio import AsyncHost
from broker.adapters.discovery import directory_warnings, find_manifests, load_manifest
from broker.bus import BusStatistics
from broker.cli import records
from broker.cli.exit_codes import FAILURE, OK
from broker.cli.run import call_once
from broker.cli.settling import Activity
from broker.cli.views import describe
from broker.errors import BrokerError, SetupError, UsageError
from broker.host import HostSettings, Notice
from broker.wire.quoting import escape

_BUS_QUIET_SECONDS = 0.15
_BUS_LIMIT_SECONDS = 1.0


async def call(given: argparse.Namespace) -> int:
    """Carry out ``broker call``; gives the exit status."""
    files = find_manifests(given.path)
    if len(files) != 1:
        raise UsageError(f"{given.path} holds {len(files)} extensions; name one")
    manifest = load_manifest(files[0])
    view = _AnswerView(as_json=given.json)
    for warning in directory_warnings(manifest):
        view.show(records.diagnostic(manifest.name, str(warning)))
    working = asyncio.ensure_future(_call(given, manifest.name, manifest, view))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, working.cancel)
    try:
        return await working
    except asyncio.CancelledError:
        print("broker: interrupted", file=sys.stderr)
        return FAILURE


async def _call(given: argparse.Namespace, name: str, manifest: Any, view: _AnswerView) -> int:
    async with AsyncHost(settings=HostSettings(restart=False)) as host:
        session = await host.open_session(given.workspace)
        activity = Activity(_BUS_QUIET_SECONDS)

        def observe(notice: Notice) -> None:
            record = records.from_notice(notice)
            if record is not None and record["kind"] == "diagnostic":
                view.show(record)

        session.add_observer(observe)
        session.bus.add_trace(lambda _: activity.note())
        try:
            extension = await session.start(manifest)
        except SetupError:
            raise
        except BrokerError as error:
            view.show(records.from_error(name, given.tool, error))
            return FAILURE
        generation = extension.generation
        if generation is not None and generation.peer is not None:
            # An extension that uses the bus declares and subscribes first; its tools usually tell of that.
            await activity.settle(_BUS_LIMIT_SECONDS)
        succeeded = await call_once(session, view, name, given.tool, given.arguments, given.timeout)
        await session.aclose()
        return OK if succeeded else FAILURE


class _AnswerView:
    """The answer on stdout, everything else on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, record: dict[str, Any]) -> None:
        if record["kind"] != "call":
            print(describe(record), file=sys.stderr, flush=True)
        elif self._as_json:
            print(json.dumps(record, separators=(",", ":")), flush=True)
        elif "error" in record:
            print(f"broker: {escape(record['error']['detail'])}", file=sys.stderr, flush=True)
        else:
            out = sys.stdout if record["ok"] else sys.stderr
            for part in record["content"]:
                # Line ends are the tool's own layout; anything else that could steer a terminal is escaped.
                print("\n".join(escape(line, max_chars=len(line) * 10) for line in part["text"].split("\n")), file=out)
            out.flush()

    def refresh(self, statistics: BusStatistics) -> None:
        pass

    def close(self) -> None:
        pass
