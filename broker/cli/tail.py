"""``broker tail``: the events of a file, readable, as they are written."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import BinaryIO, Final

from broker.cli.exit_codes import OK
from broker.cli.interrupts import interrupts
from broker.errors import SetupError
from broker.limits import FOLLOW_INTERVAL_MS, MAX_READ_CHUNK_BYTES
from broker.wire.odek.events.event import Event
from broker.wire.odek.events.life import LIFE_TYPES
from broker.wire.odek.events.reader import EventReader
from broker.wire.odek.events.types import EVENT_TYPES
from broker.wire.quoting import escape

TYPES: Final = (*EVENT_TYPES, *LIFE_TYPES)
"""The types that are known, and may be asked for."""

_SHORT_RUN: Final = 8
_TYPE_WIDTH: Final = max(map(len, TYPES))


async def tail(given: argparse.Namespace) -> int:
    """Carry out ``broker tail``; gives the exit status."""
    stop = asyncio.Event()
    with interrupts(stop.set):
        source = _Source(given.path)
        reader = EventReader()
        try:
            while True:
                while data := source.read():
                    for event in reader.feed(data):
                        if not given.types or event.type in given.types:
                            print(_json(event) if given.json else describe(event), flush=given.follow)
                    if stop.is_set():
                        return OK
                if not given.follow or await _waited(stop):
                    return OK
                if source.begins_anew():
                    reader = EventReader()
        finally:
            source.close()


async def _waited(stop: asyncio.Event) -> bool:
    """Wait for a moment; whether the end was asked for."""
    try:
        await asyncio.wait_for(stop.wait(), FOLLOW_INTERVAL_MS / 1000)
    except TimeoutError:
        return False
    return True


def describe(event: Event) -> str:
    """An event as a line for people, safe to print."""
    where = f"it{event.iteration}" if event.iteration is not None else ""
    words = [event.timestamp, event.run_id[:_SHORT_RUN], f"{where:<4}", f"{event.type:<{_TYPE_WIDTH}}"]
    if event.tool is not None:
        words.append(event.tool)
    for name, value in event.data.items():
        shown = value if isinstance(value, str) and value.isprintable() and " " not in value else json.dumps(value)
        words.append(f"{name}={shown}")
    return escape(" ".join(words))


def _json(event: Event) -> str:
    return json.dumps(event.to_json(), separators=(",", ":"))


class _Source:
    """The file, read on from where it ended; another file in its place, or a shorter one, is read from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._open()

    def read(self) -> bytes:
        """More bytes; none at the end for now."""
        return self._file.read(MAX_READ_CHUNK_BYTES)

    def begins_anew(self) -> bool:
        """Whether the path has become another file, or the file shorter; then the next read is from its start."""
        mine = os.fstat(self._file.fileno())
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
            self._file.close()
            self._file = self._open()
            return True
        if mine.st_size < self._file.tell():
            self._file.seek(0)
            return True
        return False

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> BinaryIO:
        try:
            return open(self._path, "rb", buffering=0)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SetupError(f"{self._path}: {why}", path=str(self._path)) from error
