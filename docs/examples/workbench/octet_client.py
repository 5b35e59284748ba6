"""A small client of the octet 0.3 wire: what an extension needs to answer tools and to take part in the session's bus.

Standard library only. One thread (the caller of :meth:`Extension.run`) reads; every tool call and the extension's own
work run on threads beside it, so a slow tool never keeps the extension from hearing a cancel, an event or the shutdown.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

API_VERSION = "0.3"
BUS_METHODS = ("bus/declare", "bus/event", "bus/lifecycle", "bus/publish", "bus/subscribe", "bus/unsubscribe")
ERRORS = {
    -32601: "unknown or unnegotiated method",
    -32602: "invalid params",
    -32603: "internal error",
    -32010: "extension API version mismatch",
    -32011: "extension capability mismatch",
    -32800: "request cancelled",
}
INVALID_PARAMS, CAPABILITY_MISMATCH, RESOURCE_EXHAUSTED = -32602, -32011, -32012
ANSWER_SECONDS = 30.0


class RefusedError(Exception):
    """The host answered a request with an error; ``code`` says which."""

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"{method}: {message} ({code})")
        self.code = code


class UnboundError(Exception):
    """There is no bus to publish on at the moment: not offered, not bound yet, or the binding changed."""


class CancelledError(Exception):
    """The host cancelled the tool call."""


@dataclass
class Tool:
    """A tool: its definition, and ``run(arguments, cancelled)`` giving text and structured content.

    ``run`` raises ``ValueError`` for arguments it cannot use (the caller sees a failed tool) and should look at the
    ``cancelled`` event when it takes long.
    """

    description: str
    parameters: dict[str, Any]
    run: Callable[[Any, threading.Event], tuple[str, Any]]


@dataclass
class _Request:
    """A request of ours that waits for its answer."""

    done: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] = field(default_factory=dict)


def text_field(name: str, max_bytes: int) -> dict[str, Any]:
    return {"name": name, "kind": "string", "required": True, "max_bytes": max_bytes, "values": []}


def integer_field(name: str, minimum: int, maximum: int) -> dict[str, Any]:
    bounds = {"minimum": minimum, "maximum": maximum}
    return {"name": name, "kind": "integer", "required": True, "max_bytes": 16, "values": [], **bounds}


def enum_field(name: str, *values: str) -> dict[str, Any]:
    return {"name": name, "kind": "enum", "required": True, "max_bytes": 64, "values": list(values)}


def canonical(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no white space, nothing escaped that need not be."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def log(text: str) -> None:
    """One line on stderr, which the host keeps as a diagnostic."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Extension:
    """One extension process.

    ``topics`` maps the topics it declares to their fields, ``subscriptions`` lists the topics it listens to, and
    ``on_event(topic, payload)`` gets their events, in order, on the reading thread: it must not wait for anything.
    ``work()`` runs on a thread of its own once the host has initialized the extension.
    """

    def __init__(
        self,
        *,
        tools: dict[str, Tool] | None = None,
        topics: dict[str, list[dict[str, Any]]] | None = None,
        subscriptions: tuple[str, ...] = (),
        on_event: Callable[[str, dict[str, Any]], None] = lambda topic, payload: None,
        work: Callable[[], None] | None = None,
    ) -> None:
        self.flags: dict[str, Any] = {}
        self.workspace = os.getcwd()
        self._tools = tools or {}
        self._topics = topics or {}
        self._subscriptions = subscriptions
        self._on_event = on_event
        self._work = work
        self._methods: set[str] = set()
        self._max_frame = 0
        self._write_lock = threading.Lock()
        self._lock = threading.Lock()
        self._last_id = 0
        self._requests: dict[int, _Request] = {}
        self._calls: dict[Any, threading.Event] = {}
        self._binding: str | None = None
        self._revision = 0
        self._bound = threading.Event()
        self._bus_jobs: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    # -- for the extension's own code ----------------------------------------------------------------------------------

    def wait_bound(self, timeout: float) -> int:
        """Wait until the topics are declared on the current bus; its revision, or 0 if that did not happen in time."""
        return self._revision if self._bound.wait(timeout) else 0

    def publish(self, topic: str, payload: dict[str, Any]) -> int:
        """Publish one event; gives its sequence. Raises :class:`RefusedError`; :class:`UnboundError` without a bus."""
        binding = self._binding
        if binding is None or not self._bound.is_set():
            raise UnboundError(topic)
        result = self._request("bus/publish", {"binding_id": binding, "topic": topic, "payload": payload})
        return int(result["sequence"])

    # -- reading -------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until the host shuts the extension down or closes its input; the exit status."""
        pending = bytearray()
        while True:
            chunk = os.read(0, 65536)
            if not chunk:
                return 0
            pending += chunk
            if b"\n" not in chunk:
                continue
            *lines, pending = pending.split(b"\n")
            for line in lines:
                try:
                    goes_on = self._receive(json.loads(line))
                except BrokenPipeError:
                    return 0  # the host is gone: the end of the input is next
                if not goes_on:
                    return 0

    def _receive(self, message: dict[str, Any]) -> bool:
        """Handle one frame; false when it was the last."""
        method, params, request_id = message.get("method"), message.get("params", {}), message.get("id")
        if method is None:
            with self._lock:
                request = self._requests.pop(request_id, None)  # type: ignore[arg-type]
            if request is not None:
                request.answer = message
                request.done.set()
        elif method == "initialize":
            return self._initialize(request_id, params)
        elif method == "shutdown":
            self._reply(request_id, {"terminal": "shutdown"})
            return False
        elif method == "tool/call":
            self._start_call(request_id, params)
        elif method == "$/cancelRequest":
            cancelled = self._calls.get(params.get("id"))
            if cancelled is not None:
                cancelled.set()
        elif method == "hook/run":
            self._reply(request_id, {"disposition": {"kind": "continue"}})
        elif method == "bus/lifecycle":
            self._lifecycle(params)
        elif method == "bus/event":
            if params["binding_id"] == self._binding:
                self._on_event(params["topic"], params["payload"])
        elif request_id is not None:
            self._fail(request_id, -32601)
        return True

    # -- initialize ----------------------------------------------------------------------------------------------------

    def _initialize(self, request_id: Any, params: dict[str, Any]) -> bool:
        if params.get("api_version") != API_VERSION:
            self._fail(request_id, -32010)
            return False
        offer = params["contract"]
        capabilities = list(offer["required_capabilities"])
        methods = list(offer["required_methods"])
        wants_bus = bool(self._topics or self._subscriptions)
        if wants_bus and "event_bus" in offer["optional_capabilities"]:
            capabilities.append("event_bus")
            methods += [method for method in BUS_METHODS if method in offer["optional_methods"]]
        hooks = set(params["contributes"].get("hooks", ()))
        if {"session_start", "session_end"} <= hooks and "lifecycle_events" in offer["optional_capabilities"]:
            capabilities.append("lifecycle_events")
            methods.append("hook/run")
        limits = dict(offer["limits"])
        limits["max_concurrent_requests"] = min(4, limits["max_concurrent_requests"])
        self._methods = set(methods)
        self._max_frame = limits["max_frame_bytes"]
        self.workspace = params["workspace"]
        self.flags = {flag["name"]: flag["value"] for flag in params["flag_values"]}
        self._reply(
            request_id,
            {
                "api_version": API_VERSION,
                "contract": {
                    "schema": offer["schema"],
                    "encoding": offer["encoding"],
                    "capabilities": sorted(capabilities),
                    "methods": sorted(methods),
                    "limits": limits,
                },
                "tools": [
                    {"name": name, "description": tool.description, "parameters": tool.parameters}
                    for name, tool in self._tools.items()
                ],
            },
        )
        if "bus/lifecycle" in self._methods:
            threading.Thread(target=self._serve_bus, daemon=True).start()
        if self._work is not None:
            threading.Thread(target=self._guarded_work, args=(self._work,), daemon=True).start()
        return True

    def _guarded_work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BrokenPipeError:
            os._exit(0)
        except BaseException as error:
            # An extension that serves on without doing its work would look alive; better to be seen to have failed.
            log(f"work failed: {type(error).__name__}: {error}")
            os._exit(1)

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _start_call(self, request_id: Any, params: dict[str, Any]) -> None:
        tool = self._tools.get(params["name"])
        if tool is None:
            self._fail(request_id, INVALID_PARAMS)
            return
        cancelled = self._calls[request_id] = threading.Event()
        threading.Thread(
            target=self._call, args=(request_id, tool, params["arguments"], cancelled), daemon=True
        ).start()

    def _call(self, request_id: Any, tool: Tool, arguments: Any, cancelled: threading.Event) -> None:
        failed, structured = False, None
        try:
            text, structured = tool.run(arguments, cancelled)
        except ValueError as error:
            failed, text = True, str(error)
        except CancelledError:
            cancelled.set()
            text = ""
        except Exception as error:
            log(f"tool failed: {type(error).__name__}: {error}")
            failed, text = True, "the tool failed"
        self._calls.pop(request_id, None)
        if cancelled.is_set():
            self._fail(request_id, -32800)
            return
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "is_error": failed, "metadata": None}
        if structured is not None:
            result["structured_content"] = structured
        self._reply(request_id, result)

    # -- the bus -------------------------------------------------------------------------------------------------------

    def _lifecycle(self, params: dict[str, Any]) -> None:
        kind = params["kind"]
        if kind == "binding":
            if params["binding_revision"] > self._revision:
                self._bound.clear()
                self._binding, self._revision = params["binding_id"], params["binding_revision"]
                self._bus_jobs.put(None)
        elif kind == "topic_available" and params["topic"] in self._subscriptions:
            self._bus_jobs.put(params["topic"])

    def _serve_bus(self) -> None:
        """Declare and subscribe whenever a binding arrives, subscribe again whenever a topic does."""
        while True:
            topic = self._bus_jobs.get()
            binding = self._binding
            try:
                if topic is None:
                    for declared, fields in self._topics.items():
                        self._request("bus/declare", {"binding_id": binding, "topic": declared, "fields": fields})
                    for wanted in self._subscriptions:
                        self._request("bus/subscribe", {"binding_id": binding, "topic": wanted})
                    if binding == self._binding:
                        self._bound.set()
                else:
                    self._request("bus/subscribe", {"binding_id": binding, "topic": topic})
            except UnboundError as error:
                log(f"not selected: {error}")
            except RefusedError as error:
                # A stale binding is refused when the bus was reset meanwhile; the next binding starts all over.
                if error.code != CAPABILITY_MISMATCH or binding == self._binding:
                    log(str(error))

    # -- writing -------------------------------------------------------------------------------------------------------

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method not in self._methods:
            raise UnboundError(method)
        request = _Request()
        with self._lock:
            self._last_id += 1
            request_id = self._last_id
            self._requests[request_id] = request
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        if not request.done.wait(ANSWER_SECONDS):
            with self._lock:
                self._requests.pop(request_id, None)
            raise RefusedError(method, -32603, "no answer in time")
        if "error" in request.answer:
            error = request.answer["error"]
            raise RefusedError(method, error["code"], error["message"])
        result: dict[str, Any] = request.answer["result"]
        return result

    def _reply(self, request_id: Any, result: Any) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _fail(self, request_id: Any, code: int) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": ERRORS[code]}})

    def _send(self, message: dict[str, Any]) -> None:
        frame = canonical(message)
        if self._max_frame and len(frame) > self._max_frame and "result" in message:
            frame = canonical(
                {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": ERRORS[-32603]}}
            )
        with self._write_lock:
            view = memoryview(frame + b"\n")
            while view:
                view = view[os.write(1, view) :]
