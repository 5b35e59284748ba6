"""Extensions that the host's tests start, in memory and as processes."""

from __future__ import annotations

from typing import Any

from broker.testing import ScriptedExtension

FIELD = {"name": "n", "kind": "integer", "required": True, "max_bytes": 16, "values": []}


class Echo(ScriptedExtension):
    """Answers ``echo`` with its own arguments; ``never`` with nothing; ``quit`` by exiting."""

    def __init__(self) -> None:
        super().__init__(tools=("echo", "never", "quit"))

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") != "tool/call":
            super().on_message(message)
            return
        name = message["params"]["name"]
        if name == "quit":
            self.send_stderr(b"going down\n")
            self.exit(7)
        elif name == "echo":
            text = message["params"]["arguments"].get("text", "")
            self.answer(
                message["id"], {"content": [{"type": "text", "text": text}], "is_error": False, "metadata": None}
            )


class Publisher(ScriptedExtension):
    """Declares its topic at every binding and publishes on it when its tool is called."""

    topic = "bus.publisher.count"

    def __init__(self) -> None:
        super().__init__(tools=("publish",), capabilities=("event_bus",))
        self.binding = ""
        self.calls: dict[str, int] = {}

    def on_message(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "bus/lifecycle" and params["kind"] == "binding":
            self.binding = params["binding_id"]
            fields = {"binding_id": self.binding, "topic": self.topic, "fields": [FIELD]}
            self.request(f"declare-{self.binding}", "bus/declare", fields)
        elif method == "tool/call":
            number = message["params"]["arguments"]["n"]
            self.calls[f"publish-{message['id']}"] = message["id"]
            payload = {"binding_id": self.binding, "topic": self.topic, "payload": {"n": number}}
            self.request(f"publish-{message['id']}", "bus/publish", payload)
        elif method is None and message.get("id") in self.calls:
            outcome = message.get("error", message.get("result"))
            self.answer(
                self.calls.pop(message["id"]),
                {"content": [], "is_error": "error" in message, "metadata": {"outcome": outcome}},
            )
        else:
            super().on_message(message)


class Collector(ScriptedExtension):
    """Subscribes to the publisher's topic, again whenever it becomes available; tells what it received."""

    topic = "bus.publisher.count"

    def __init__(self) -> None:
        super().__init__(tools=("collected",), capabilities=("event_bus",))
        self.binding = ""
        self.log: list[Any] = []
        self._next = 0

    def on_message(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "bus/lifecycle":
            self.log.append(params["kind"])
            if params["kind"] == "binding":
                self.binding = params["binding_id"]
            if params["kind"] != "topic_unavailable":
                self._next += 1
                fields = {"binding_id": self.binding, "topic": self.topic}
                self.request(f"subscribe-{self._next}", "bus/subscribe", fields)
        elif method == "bus/event":
            self.log.append([params["sequence"], params["payload"]["n"]])
        elif method is None and str(message.get("id", "")).startswith("subscribe"):
            self.log.append(message["result"]["state"])
        elif method == "tool/call":
            self.answer(message["id"], {"content": [], "is_error": False, "metadata": {"log": self.log}})
        else:
            super().on_message(message)
