"""A session of scripted extensions, in memory, and its inspection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import define, field

from broker import Host
from broker.errors import BrokerError
from broker.host import Session, records
from broker.inspector import Inspection
from broker.testing import ManualClock, MemoryDriver, ScriptedExtension
from broker.wire.octet.manifest import parse_manifest

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


@define
class World:
    """One session with its inspection, and what moves it."""

    clock: ManualClock = field(factory=lambda: ManualClock(unix_ms=1_700_000_000_000))
    driver: MemoryDriver = field(init=False)
    session: Session = field(init=False)
    inspection: Inspection = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.driver = MemoryDriver(self.clock, {"greeter": lambda link: Greeter()})
        self.session = Host(self.driver, clock=self.clock).open_session("/workspace")
        self.inspection = Inspection(self.session)
        self.session.add_observer(lambda notice: self._note(records.from_notice(notice)))
        self.session.bus.add_trace(lambda record: self._note(records.from_trace(record)))
        manifest = b"""
            name = "greeter"
            version = "1.0.0"
            api_version = "0.3"
            [entrypoint]
            command = "greeter"
            [contributes]
            tools = ["greet", "crash"]
        """
        self.session.add(parse_manifest(manifest, path="/greeter/extension.toml")).start()
        self.driver.run()

    async def call(self, extension: str, tool: str, arguments: Any) -> dict[str, Any]:
        """Call a tool, as a person does from the inspector."""
        call = self.session.call(extension, tool, arguments)
        self.driver.run()
        try:
            record = records.from_result(extension, tool, call.result())
        except BrokerError as error:
            record = records.from_error(extension, tool, error)
        self.inspection.note(record)
        return record

    def _note(self, record: dict[str, Any] | None) -> None:
        if record is not None:
            self.inspection.note(record)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.session.close()
    made.driver.run()
