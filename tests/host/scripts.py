"""Extensions that the host's tests start, in memory and as processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

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
            # Refused when the host has begun to shut down meanwhile.
            self.log.append(message["result"]["state"] if "result" in message else "refused")
        elif method == "tool/call":
            self.answer(message["id"], {"content": [], "is_error": False, "metadata": {"log": self.log}})
        else:
            super().on_message(message)


Act: TypeAlias = Callable[["Actor", dict[str, Any]], object]
EMPTY = {"content": [], "is_error": False, "metadata": None}


class Actor(ScriptedExtension):
    """Behaves well but where ``play`` says otherwise: a method or hook, and what it does then; None is silence."""

    def __init__(
        self,
        play: Mapping[str, Act | None] | None = None,
        *,
        tools: tuple[str, ...] = ("work",),
        capabilities: tuple[str, ...] = (),
        limits: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(tools=tools, capabilities=capabilities)
        self.play = dict(play or {})
        self.limits = dict(limits or {})

    def on_message(self, message: dict[str, Any]) -> None:
        key = message.get("method")
        if key == "hook/run":
            key = message["params"]["hook"]
        if key in self.play:
            act = self.play[key]
            if act is not None:
                act(self, message)
        else:
            super().on_message(message)

    def on_eof(self) -> None:
        if "eof" not in self.play:
            super().on_eof()

    @property
    def heard(self) -> list[str]:
        """What the host said, each frame by its method or hook; an answer by its id."""
        return [_shown(message) for message in self.received]

    def params_of(self, what: str) -> list[dict[str, Any]]:
        """The parameters of every frame that :attr:`heard` calls ``what``."""
        return [message["params"] for message, heard in zip(self.received, self.heard, strict=True) if heard == what]

    def finish(self, number: int = -1) -> None:
        """Answer a tool call that was left open."""
        calls = [message for message in self.received if message.get("method") == "tool/call"]
        self.answer(calls[number]["id"], EMPTY)


def _shown(message: dict[str, Any]) -> Any:
    method = message.get("method", message.get("id"))
    return message["params"]["hook"] if method == "hook/run" else method


def exits(status: int, stderr: bytes = b"") -> Act:
    """Ends the process."""

    def act(actor: Actor, message: dict[str, Any]) -> None:
        actor.send_stderr(stderr)
        actor.exit(status)

    return act


def answers(result: dict[str, Any]) -> Act:
    """Answers with ``result``, and nothing else."""
    return lambda actor, message: actor.answer(message["id"], result)


def refuses(code: int, text: str, **more: Any) -> Act:
    """Answers with an error."""

    def act(actor: Actor, message: dict[str, Any]) -> None:
        actor.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text, **more}})

    return act


class Stalled(ScriptedExtension):
    """Subscribes, then does not read until there is a file ``go`` in its working directory."""

    def __init__(self) -> None:
        super().__init__(tools=("work",), capabilities=("event_bus",))

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") == "bus/lifecycle" and message["params"]["kind"] == "binding":
            topic = {"binding_id": message["params"]["binding_id"], "topic": "bus.plugin.count"}
            self.request("subscribe", "bus/subscribe", topic)
        elif message.get("id") == "subscribe":
            os.write(2, b"stalled\n")
            while not os.path.exists("go"):
                time.sleep(0.005)
        else:
            super().on_message(message)
