"""A session of scripted extensions, in memory, and its inspection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.errors import BrokerError
from broker.host import records
from broker.inspector import Inspection
from broker.testing import ManualClock, MemoryHost, MemorySession, ScriptedExtension

SCHEMA = {"type": "object", "properties": {"who": {"type": "string"}, "loud": {"type": "boolean"}}, "required": ["who"]}


class Greeter(ScriptedExtension):
    """Greets, says so on stderr, and goes down when it is told to."""

    def __init__(self) -> None:
        super().__init__(tools=("greet", "crash"))

    def selection(self, offer: dict[str, Any]) -> dict[str, Any]:
        selected = super().selection(offer)
        selected["tools"][0].update(parameters=SCHEMA, description="Greets [red]somebody[/red].")
        return selected

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") != "tool/call":
            super().on_message(message)
        elif message["params"]["name"] == "crash":
            self.send_stderr(b"going \x1b[31mdown\n")
            self.exit(3)
        else:
            text = {"type": "text", "text": f"hello, {message['params']['arguments']['who']}"}
            self.answer(message["id"], {"content": [text], "is_error": False, "metadata": None})


class World:
    """One session with its inspection."""

    def __init__(self, session: MemorySession) -> None:
        self.memory = session
        self.session = session.session
        self.clock = session.clock
        self.inspection = Inspection(self.session)
        session.add_observer(lambda notice: self._note(records.from_notice(notice)))
        session.bus.add_trace(lambda record: self._note(records.from_trace(record)))
        session.start(Greeter)

    async def call(self, extension: str, tool: str, arguments: Any) -> dict[str, Any]:
        """Call a tool, as a person does from the inspector."""
        try:
            record = records.from_result(extension, tool, self.memory.call(extension, tool, arguments))
        except BrokerError as error:
            record = records.from_error(extension, tool, error)
        self.inspection.note(record)
        return record

    def _note(self, record: dict[str, Any] | None) -> None:
        if record is not None:
            self.inspection.note(record)


@pytest.fixture
def world() -> Iterator[World]:
    with MemoryHost(clock=ManualClock(unix_ms=1_700_000_000_000), patience_ms=0) as host:
        yield World(host.open_session())
