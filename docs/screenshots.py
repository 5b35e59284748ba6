"""Write docs/gallery: the inspector over a session in memory, always the same one.

``python docs/screenshots.py`` needs the extra ``inspect``. The pictures change with the version of textual, so they are
written by hand when the inspector changes, and not checked.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from broker import Field
from broker.errors import BrokerError, ResourceExhaustedError
from broker.host import records
from broker.inspector import Inspection
from broker.inspector.app import InspectorApp
from broker.testing import ManualClock, MemoryHost, ScriptedExtension, ScriptedServer

GALLERY = Path(__file__).parent / "gallery"
SIZE = (132, 34)
REPORT = [
    {"name": "file", "kind": "string", "required": True, "max_bytes": 128, "values": []},
    {
        "name": "faults",
        "kind": "integer",
        "required": True,
        "max_bytes": 16,
        "minimum": 0,
        "maximum": 9999,
        "values": [],
    },
]
PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "a file of the workspace"},
        "depth": {"type": "integer", "default": 2},
        "mode": {"type": "string", "enum": ["fast", "thorough"], "default": "fast"},
        "fix": {"type": "boolean"},
    },
    "required": ["path"],
}


class Checker(ScriptedExtension):
    """Declares a topic, and publishes what it was asked to check."""

    def __init__(self) -> None:
        super().__init__(tools=("check",), capabilities=("event_bus",))
        self._binding = ""
        self._requests = 0

    def selection(self, offer: dict[str, Any]) -> dict[str, Any]:
        selected = super().selection(offer)
        selected["tools"][0].update(parameters=PARAMETERS, description="Checks one file and reports its faults.")
        return selected

    def on_message(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params")
        if method == "bus/lifecycle" and params["kind"] == "binding":
            self._binding = params["binding_id"]
            self._ask("bus/declare", {"topic": "bus.checker.report", "fields": REPORT})
        elif method == "tool/call":
            path = params["arguments"]["path"]
            self._ask(
                "bus/publish", {"topic": "bus.checker.report", "payload": {"file": path, "faults": len(path) % 3}}
            )
            text = {"type": "text", "text": f"{path}: {len(path) % 3} faults"}
            self.answer(message["id"], {"content": [text], "is_error": False, "metadata": None})
        else:
            super().on_message(message)

    def _ask(self, method: str, params: dict[str, Any]) -> None:
        self._requests += 1
        self.request(self._requests, method, {"binding_id": self._binding, **params})


class Scene:
    """A session with a checker, an MCP server, a board that reads and a logger that does not."""

    def __init__(self) -> None:
        self.session = MemoryHost(clock=ManualClock(unix_ms=1_764_500_000_000)).open_session()
        self.session.session.session_id = "5e5510" + "0" * 26
        self.inspection = Inspection(self.session.session)
        self.session.add_observer(lambda notice: self._note(records.from_notice(notice)))
        self.session.bus.add_trace(lambda record: self._note(records.from_trace(record)))
        board, logger = self.session.peer("board"), self.session.peer("logger")
        for peer in (board, logger):
            peer.subscribe("bus.checker.report")
        board.subscribe("bus.deployer.state")
        self.session.add(Checker)
        self.session.add(ScriptedServer({"read": "x", "list": "y"}), name="files")
        self.session.start()
        board.subscribe("bus.checker.report")  # it was told that the topic is there now
        watcher = self.session.peer("watcher")
        watcher.declare("bus.watcher.changes", [Field.string("file"), Field.integer("size", minimum=0)])
        logger.subscribe("bus.watcher.changes")
        for number in range(66):
            self.session.advance(7)
            try:
                watcher.publish("bus.watcher.changes", {"file": f"src/module_{number}.py", "size": 100 * number})
            except ResourceExhaustedError:
                continue

    async def call(self, extension: str, tool: str, arguments: Any) -> dict[str, Any]:
        """Call a tool of an extension."""
        call = self.session.session.call(extension, tool, arguments)
        self.session.advance(12)
        try:
            record = records.from_result(extension, tool, call.result())
        except BrokerError as error:
            record = records.from_error(extension, tool, error)
        self._note(record)
        return record

    def _note(self, record: dict[str, Any] | None) -> None:
        if record is not None:
            self.inspection.note(record)


async def main() -> None:
    scene = Scene()
    app = InspectorApp(scene.inspection, scene.call)
    GALLERY.mkdir(exist_ok=True)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        save(app, "overview")
        await pilot.press("slash", *"who:watcher module_4")
        await settle(pilot)
        save(app, "records")
        await pilot.press("escape", "3")
        await settle(pilot)
        save(app, "refusals")
        await pilot.press("5")
        await settle(pilot)
        await pilot.press("down", "enter")
        await settle(pilot)
        await pilot.press(*"src/main.py", "enter")
        await settle(pilot)
        save(app, "calls")
    scene.session.close()


async def settle(pilot: Pilot[None]) -> None:
    """Let every message be worked off, and the screen be drawn."""
    for _ in range(5):
        await pilot.pause(0.1)


def save(app: InspectorApp, name: str) -> None:
    """Write the screen as a picture, with the reader's own fonts."""
    picture = re.sub(r"@font-face\s*{[^}]*}", "", app.export_screenshot(title=f"broker run --inspect: {name}"))
    (GALLERY / f"{name}.svg").write_text(re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE).strip() + "\n")


if __name__ == "__main__":
    asyncio.run(main())
