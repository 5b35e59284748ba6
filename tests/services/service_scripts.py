"""Extensions for the tests of services, in memory and as processes."""

from __future__ import annotations

import os
from typing import Any

from broker.testing import ScriptedExtension

MODEL = {
    "id": "small",
    "api_name": "acme-small-2",
    "protocol": "openai_chat",
    "context_window": 4_096,
    "max_output_tokens": 512,
    "capabilities": {"tools": True, "parallel_tool_calls": False, "structured_output": False, "reasoning": False},
}


def declaration(provider: str = "acme", *models: str, **auth: Any) -> dict[str, Any]:
    """The parameters of ``providers/register`` and ``/update``."""
    return {
        "provider": {"id": provider, "label": provider.title(), "auth": auth or {"kind": "none"}},
        "models": [{**MODEL, "id": model} for model in models or ("small",)],
    }


class Told(ScriptedExtension):
    """Behaves, but leaves ``provider/stream`` and migrations to the test."""

    silent = ("provider/stream", "migration/detect", "migration/import")

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") not in self.silent:
            super().on_message(message)


class Provider(ScriptedExtension):
    """Registers a provider once it is initialized, and does with each stream what its request says.

    A request is ``{"do": what, "count": n}``. ``die`` at a method or moment means to be killed with SIGKILL there.
    """

    die = ""

    def __init__(self) -> None:
        super().__init__(tools=("log",), capabilities=("provider_catalog", "provider_stream"))

    def on_message(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params")
        if method == self.die or (method is None and message.get("id") == self.die):
            self.exit(-9)
            return
        if method == "provider/stream":
            self.stream(message["id"], message["params"])
        elif method == "tool/call":
            heard = [m.get("method", m.get("id")) for m in self.received]
            self.answer(message["id"], {"content": [], "is_error": False, "metadata": {"heard": heard}})
        else:
            super().on_message(message)
        if method == "initialize" and params is not None:
            self.request("register", "providers/register", declaration(self.provider))
            self.send({"jsonrpc": "2.0", "method": "providers/complete", "params": {}})

    provider = "acme"

    def stream(self, message_id: int, params: dict[str, Any]) -> None:
        stream_id, ask = params["stream_id"], params["request"]
        if ask["do"] == "silence":
            return
        if ask["do"] == "die asked":
            self.exit(-9)
            return
        self.answer(message_id, {"stream_id": stream_id, "accepted": True})
        count = ask.get("count", 3)
        if ask["do"] == "die accepted":
            self.exit(-9)
            return
        self.event(stream_id, 0, "started", {})
        for number in range(count):
            self.event(stream_id, 1 + number, "text_delta", {"index": 0, "delta": str(number)})
        if ask["do"] == "die streaming":
            self.exit(-9)
        elif ask["do"] == "finish":
            self.event(stream_id, 1 + count, "finished", {"stop_reason": "stop"})
        else:
            assert ask["do"] == "hang"

    def event(self, stream_id: str, sequence: int, kind: str, payload: Any) -> None:
        params = {"stream_id": stream_id, "sequence": sequence, "kind": kind, "payload": payload}
        self.send({"jsonrpc": "2.0", "method": "provider/event", "params": params})


class Other(Provider):
    """Another provider, beside the one that has trouble."""

    provider = "other"


class DiesAtInitialize(Provider):
    die = "initialize"


class DiesWhenRegistered(Provider):
    die = "register"


class DiesAtCancel(Provider):
    die = "provider/cancel"


class DiesAtShutdown(Provider):
    die = "shutdown"


class Deaf(Provider):
    """Has stopped reading before it is told to end; only a kill ends it."""

    def on_message(self, message: dict[str, Any]) -> None:
        super().on_message(message)
        if message.get("method") == "provider/stream":
            self.reading = False


class Asking(ScriptedExtension):
    """Asks the host for everything it may decide, and tells what it was answered."""

    asks = (
        ("session/create", {}),
        ("session/fork", {}),
        ("session/switch", {"session_id": "s-1"}),
        ("session/reload", {}),
        ("theme/select", {"namespace": "asking", "theme_id": "dusk", "role": "dim", "scope": "extension"}),
    )

    def __init__(self) -> None:
        super().__init__(tools=("answers",), capabilities=("session_lifecycle", "theme_selection"))
        self.answers: dict[str, Any] = {}

    def on_message(self, message: dict[str, Any]) -> None:
        method, message_id = message.get("method"), message.get("id")
        if method is None:
            error = message.get("error")
            self.answers[str(message_id)] = [error["code"], error.get("data")] if error else message["result"]
        elif method == "tool/call":
            self.answer(message["id"], {"content": [], "is_error": False, "metadata": {"answers": self.answers}})
        else:
            super().on_message(message)
        if method == "initialize":
            for ask, params in self.asks:
                self.request(ask, ask, params)


class Everything(Asking):
    """Selects every optional service it is offered, and uses or serves each of them."""

    asks = (
        ("session/create", {}),
        ("theme/select", {"namespace": "all", "theme_id": "dusk", "role": "dim", "scope": "extension"}),
        ("providers/register", declaration("acme")),
        ("provider/auth/request", {"provider_id": "acme", "action": "authorize", "interactive": False}),
    )

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = (
            "migration.adapter.v1",
            "provider_auth",
            "provider_catalog",
            "provider_stream",
            "session_lifecycle",
            "theme_selection",
        )

    def on_message(self, message: dict[str, Any]) -> None:
        method, message_id = message.get("method"), message.get("id")
        if method == "provider/stream":
            stream_id = message["params"]["stream_id"]
            self.answer(message["id"], {"stream_id": stream_id, "accepted": True})
            params = {"stream_id": stream_id, "sequence": 0, "kind": "finished", "payload": {"stop_reason": "stop"}}
            self.send({"jsonrpc": "2.0", "method": "provider/event", "params": params})
        elif method == "migration/detect" and message_id is not None:
            self.answer(message_id, {"detected": True, "config_paths": [], "diagnostics": []})
        elif method == "migration/import" and message_id is not None:
            self.answer(message_id, {"models": [], "skills": [], "mcp_servers": [], "diagnostics": []})
        else:
            super().on_message(message)


class DiesAsking(Everything):
    """Asks, and is killed before it can hear an answer."""

    def on_message(self, message: dict[str, Any]) -> None:
        super().on_message(message)
        if message.get("method") == "initialize":
            self.exit(-9)


class DiesMigrating(Everything):
    """Is killed when it is asked to import."""

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") == "migration/import":
            self.exit(-9)
        else:
            super().on_message(message)


class Flood(Provider):
    """Once it has accepted a stream it writes events as fast as the pipe takes them, and hears nothing any more."""

    def stream(self, message_id: int, params: dict[str, Any]) -> None:
        stream_id = params["stream_id"]
        result = {"jsonrpc": "2.0", "id": message_id, "result": {"stream_id": stream_id, "accepted": True}}
        os.write(1, self.encode(result) + b"\n")
        for sequence in range(10_000_000):
            event = {"stream_id": stream_id, "sequence": sequence, "kind": "text_delta"}
            payload = {"index": 0, "delta": "x" * 1_000}
            frame = {"jsonrpc": "2.0", "method": "provider/event", "params": {**event, "payload": payload}}
            data = memoryview(self.encode(frame) + b"\n")
            while data:
                data = data[os.write(1, data) :]
