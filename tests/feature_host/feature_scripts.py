"""Extensions of API 0.1, 0.2 and 0.4 that the host's tests start, in memory and as processes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any

from broker.testing import ScriptedFeatureExtension

OWNED = ("create", "fork", "switch", "reload", "compact", "wait_for_idle")


class Plain(ScriptedFeatureExtension):
    """Behaves well, in the version that it is asked for."""

    tool_names: tuple[str, ...] = ("work",)

    def __init__(self) -> None:
        super().__init__(tools=self.tool_names, text="done")
        self.owner: Any = None


class Asker(Plain):
    """Asks the host whatever its tool's arguments say, and answers with what the host answered.

    Arguments: ``ask`` is a list of [method, fields]; each is asked under the call that is answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, tuple[int, int]] = {}
        self.answers: dict[int, list[Any]] = {}

    def on_message(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "tool/call" and "ask" in message["params"]["arguments"]:
            self.ask(message["id"], message["params"]["arguments"]["ask"], message["params"]["context"])
        elif method is None and message.get("id") in self.calls:
            call, index = self.calls.pop(message["id"])
            answers = self.answers[call]
            answers[index] = message.get("error", message.get("result"))
            if not any(other == call for other, _ in self.calls.values()):
                self.finish(call, answers)
        else:
            super().on_message(message)

    def ask(self, call: int, questions: list[Any], context: dict[str, Any]) -> None:
        self.answers[call] = [None] * len(questions)
        for index, (method, fields) in enumerate(questions):
            request_id = f"{call}/{index}"
            self.calls[request_id] = (call, index)
            params = dict(fields)
            if self.version != "0.1" and not method.startswith(("tools/register", "tools/unregister")):
                params.setdefault("parent_request_id", call)
                if method.startswith("session/") and method.removeprefix("session/") in OWNED:
                    params.setdefault("resource_owner", context["resource_owner"])
            self.request(request_id, method, params)

    def finish(self, call: int, answers: list[Any]) -> None:
        self.text = json.dumps(answers)
        self.answer(call, self.default_result("tool/call"))


class Teller(Plain):
    """Sends the notifications its tool's arguments list, then answers the call."""

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") == "tool/call":
            for method, fields in message["params"]["arguments"].get("tell", ()):
                params = {**fields}
                for key in ("parent_request_id", "request_id"):
                    if params.get(key) == "call":
                        params[key] = message["id"]
                if params.get("resource_owner") == "own":
                    params["resource_owner"] = message["params"]["context"].get("resource_owner")
                self.send({"jsonrpc": "2.0", "method": method, "params": params})
            if message["params"]["arguments"].get("stay"):
                return
        super().on_message(message)


class Mute(Plain):
    """Answers initialize and shutdown and nothing else."""

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") in ("initialize", "shutdown"):
            super().on_message(message)


class Contributor(Plain):
    """Contributes a little of everything."""

    def agreement(self, params: dict[str, Any]) -> dict[str, Any]:
        self.commands = ("go",)
        return super().agreement(params)

    def default_result(self, method: str) -> Any:
        item = {"label": "tides", "content": "14:05", "placement": "end"}
        note = {"level": "info", "message": "gone"}
        results = {
            "command/execute": {"text": "went", "notifications": [note], "context": [item]},
            "hook/run": {"disposition": {"action": "deny", "reason": "no"}, "context": [item]},
            "context/collect": [item],
            "status/collect": {"surface": "status", "text": "high", "style_role": "dim", "priority": 3},
            "menu/collect": {"items": [{"label": "Go", "command": "go"}]},
            "tool/render": {"segments": [{"text": "tide", "style_role": "strong"}]},
        }
        return results.get(method, super().default_result(method))


def inline_artifact(data: bytes) -> dict[str, Any]:
    """The fields of an artifact that is sent inside its request."""
    return {
        "mime_type": "text/plain",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "data": base64.b64encode(data).decode(),
    }


class Menus(Plain):
    """Has a command and a menu, and answers neither."""

    def agreement(self, params: dict[str, Any]) -> dict[str, Any]:
        self.commands = ("go",)
        return super().agreement(params)

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") not in ("menu/collect", "command/execute"):
            super().on_message(message)


class Hooked(Plain):
    """Answers every hook with more than most hooks may say."""

    def default_result(self, method: str) -> Any:
        if method == "hook/run":
            return {"disposition": {"action": "continue"}, "strategy": "keep", "ratio": 0.5}
        return super().default_result(method)


class Dying(Asker):
    """Kills itself at the given step, in its first life; a later one behaves well and answers ``done``."""

    at = ""

    def on_message(self, message: dict[str, Any]) -> None:
        mark = "died-at-" + self.at.replace("/", "-")
        first = not os.path.exists(mark)
        method = message.get("method", "answer")
        if first and method == self.at.partition("+")[0]:
            with open(mark, "w"):
                pass
            if self.at.endswith("+"):
                super().on_message(message)
            self.exit_status = -9
        elif method == "tool/call" and "ask" not in message["params"]["arguments"] and first:
            if "stay" not in message["params"]["arguments"]:
                super().on_message(message)
        else:
            super().on_message(message)


class DyingAtInitialize(Dying):
    at = "initialize"


class DyingAfterInitialize(Dying):
    at = "initialize+"


class DyingAtCall(Dying):
    at = "tool/call"


class DyingAfterAsking(Dying):
    at = "tool/call+"


class DyingAtAnswer(Dying):
    at = "answer"


class DyingAtCancel(Dying):
    at = "$/cancelRequest"


class DyingAtShutdown(Dying):
    at = "shutdown"


class DyingAfterShutdown(Dying):
    at = "shutdown+"


class DyingAtHook(Dying):
    at = "hook/run"
