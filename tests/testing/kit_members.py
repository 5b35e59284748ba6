"""Extensions that the kit's own tests are played with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.testing import Script, ScriptedExtension, ScriptedServer
from broker.testing.script import answer, any_order, capture, captured, expect, expect_result, request, wait

NUMBER = {"name": "n", "kind": "integer", "required": True, "max_bytes": 16, "values": []}
EMPTY: dict[str, Any] = {"content": [], "is_error": False, "metadata": None}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "is_error": False, "metadata": None}


class Echo(ScriptedExtension):
    """Answers ``echo`` with its text, ``never`` with nothing, and ``crash`` by exiting."""

    def __init__(self) -> None:
        super().__init__(tools=("echo", "never", "crash"))

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") != "tool/call":
            super().on_message(message)
        elif message["params"]["name"] == "echo":
            self.answer(message["id"], text(message["params"]["arguments"].get("text", "")))
        elif message["params"]["name"] == "crash":
            self.exit(3)


class Member(ScriptedExtension):
    """Takes part in the bus: declares ``declares`` and follows ``follows`` at every binding."""

    declares: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    works: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(tools=self.works, capabilities=("event_bus",))
        self.binding = ""
        self._then: dict[str, Callable[[], None]] = {}
        self._asked = 0

    def ask(self, method: str, params: dict[str, Any], then: Callable[[], None] = lambda: None) -> None:
        self._asked += 1
        self._then[f"ask-{self._asked}"] = then
        self.request(f"ask-{self._asked}", method, {"binding_id": self.binding, **params})

    def publish(self, topic: str, n: int, then: Callable[[], None] = lambda: None) -> None:
        self.ask("bus/publish", {"topic": topic, "payload": {"n": n}}, then)

    def called(self, message_id: Any, arguments: dict[str, Any]) -> None:
        self.answer(message_id, EMPTY)

    def event(self, topic: str, n: int) -> None:
        pass

    def on_message(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "bus/lifecycle":
            self._notice(params)
        elif method == "bus/event":
            self.event(params["topic"], params["payload"]["n"])
        elif method == "tool/call":
            self.called(message["id"], params["arguments"])
        elif method is None:
            self._then.pop(message["id"])()
        else:
            super().on_message(message)

    def _notice(self, params: dict[str, Any]) -> None:
        if params["kind"] == "binding":
            self.binding = params["binding_id"]
            for topic in self.declares:
                self.ask("bus/declare", {"topic": topic, "fields": [NUMBER]})
            for topic in self.follows:
                self.ask("bus/subscribe", {"topic": topic})
        elif params["kind"] == "topic_available" and params["topic"] in self.follows:
            self.ask("bus/subscribe", {"topic": params["topic"]})


class Writer(Member):
    """Publishes a number, notes in a log that it did, and says that it is done."""

    declares = ("bus.writer.wrote", "bus.writer.log")
    works = ("write",)

    def called(self, message_id: Any, arguments: dict[str, Any]) -> None:
        def log() -> None:
            self.publish("bus.writer.log", 1, lambda: self.answer(message_id, EMPTY))

        self.publish("bus.writer.wrote", arguments["n"], log)


class Index(Member):
    """Passes on what was written."""

    declares = ("bus.index.indexed",)
    follows = ("bus.writer.wrote",)

    def event(self, topic: str, n: int) -> None:
        self.publish("bus.index.indexed", n)


class Reader(Member):
    """Says what was passed on last."""

    follows = ("bus.index.indexed",)
    works = ("read",)
    seen = 0

    def event(self, topic: str, n: int) -> None:
        self.seen = n

    def called(self, message_id: Any, arguments: dict[str, Any]) -> None:
        self.answer(message_id, text(str(self.seen)))


def counting_script() -> Script:
    """Publishes what it is told to count."""
    topic = "bus.counting-script.count"
    return Script(
        expect("bus/lifecycle", {"kind": "binding", "binding_id": capture("binding")}),
        request("bus/declare", {"binding_id": captured("binding"), "topic": topic, "fields": [NUMBER]}),
        any_order(
            expect_result(),
            expect("bus/lifecycle", {"kind": "topic_available"}),
            [
                expect("tool/call", {"arguments": {"n": capture("n")}}),
                request(
                    "bus/publish", {"binding_id": captured("binding"), "topic": topic, "payload": {"n": captured("n")}}
                ),
                expect_result(),
                answer(EMPTY),
            ],
        ),
        tools=("count",),
        capabilities=("event_bus",),
    )


def slow_server() -> ScriptedServer:
    return ScriptedServer({"work": "done"})


def late_server() -> Script:
    """Answers after 30 ms."""
    late = {"content": [{"type": "text", "text": "late"}]}
    return Script(expect("tools/call"), wait(30), answer(late), version="mcp", tools={"work": ""})
