"""A slow model of the octet 0.3 negotiation and of the host's request table, written from the reference alone.

Nothing here comes from the package: the tables are written out again, and every rule is the plainest code for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

REQUIRED = {
    "core": ["initialize", "shutdown"],
    "tool_call": ["tool/call"],
    "content_parts": [],
    "request_cancellation": ["$/cancelRequest"],
}
OPTIONAL = {
    "lifecycle_events": ["hook/run"],
    "migration.adapter.v1": ["migration/detect", "migration/import"],
    "provider_catalog": ["providers/register", "providers/update", "providers/unregister", "providers/complete"],
    "provider_stream": ["provider/stream", "provider/event", "provider/cancel"],
    "provider_auth": ["provider/auth/request", "provider/auth/revoke"],
    "session_lifecycle": ["session/create", "session/fork", "session/switch", "session/reload"],
    "theme_selection": ["theme/select"],
    "event_bus": [
        "bus/declare",
        "bus/subscribe",
        "bus/unsubscribe",
        "bus/publish",
        "bus/event",
        "bus/lifecycle",
    ],
}
DEFERRED_METHODS = {
    "context/collect": "lifecycle_events",
    "tools/register": "dynamic_tools",
    "tools/unregister": "dynamic_tools",
}
HOME = {
    method: capability for table in (REQUIRED, OPTIONAL) for capability, methods in table.items() for method in methods
} | DEFERRED_METHODS
CAPABILITIES = {*REQUIRED, *OPTIONAL, "dynamic_tools"}
MAXIMA = {"max_frame_bytes": 1_048_576, "max_concurrent_requests": 64, "max_tools": 256}


def judge(
    answer: dict[str, Any], offered: set[str], limits: dict[str, int], tools: set[str], hooks: bool
) -> str | None:
    """The name of the error the first fault of a well-shaped answer to ``initialize`` is, ``None`` if it is right.

    ``offered`` are the optional capabilities of the offer, ``limits`` its limits, ``tools`` and ``hooks`` what the
    manifest declares.
    """
    contract = answer["contract"]
    capabilities, methods = contract["capabilities"], contract["methods"]
    if answer["api_version"] != "0.3" or contract["schema"] != "octet.extension.api/0.3":
        return "version_mismatch"
    if contract["encoding"] != "octet-canonical-json-v1":
        return "invalid_params"
    for names, count, size, known in ((capabilities, 32, 64, CAPABILITIES), (methods, 64, 128, set(HOME))):
        if len(names) > count:
            return "resource_exhausted"
        if "" in names:
            return "invalid_params"
        if any(len(name.encode()) > size for name in names):
            return "resource_exhausted"
        if any(name not in known for name in names) or len(set(names)) != len(names):
            return "capability_mismatch"
    if "dynamic_tools" in capabilities or any(method in DEFERRED_METHODS for method in methods):
        return "capability_mismatch"
    if any(HOME[method] not in capabilities for method in methods):
        return "capability_mismatch"
    selected = contract["limits"]
    if any(selected[name] == 0 for name in MAXIMA):
        return "invalid_params"
    if any(selected[name] > MAXIMA[name] for name in MAXIMA):
        return "resource_exhausted"
    if len(answer["tools"]) > selected["max_tools"]:
        return "resource_exhausted"
    usable = set(REQUIRED) | offered
    usable_methods = {method for capability in usable for method in {**REQUIRED, **OPTIONAL}[capability]}
    wrong = (
        not set(capabilities) <= usable,
        not set(REQUIRED) <= set(capabilities),
        not set(methods) <= usable_methods,
        not {method for needed in REQUIRED.values() for method in needed} <= set(methods),
        any(selected[name] > limits[name] for name in MAXIMA),
        "event_bus" in capabilities and "bus/lifecycle" not in methods,
        "bus/subscribe" in methods and "bus/event" not in methods,
        0 < len(set(OPTIONAL["provider_stream"]) & set(methods)) < 3,
        bool(set(OPTIONAL["provider_stream"] + OPTIONAL["provider_auth"]) & set(methods))
        and "provider_catalog" not in capabilities,
        ("lifecycle_events" in capabilities) != hooks,
        ("hook/run" in methods) != hooks,
        {tool["name"] for tool in answer["tools"]} != tools,
        len({tool["name"] for tool in answer["tools"]}) != len(answer["tools"]),
    )
    return "capability_mismatch" if any(wrong) else None


@dataclass
class Call:
    """A request of the host: what its caller knows, and whether it still occupies a slot."""

    number: int
    bypass: bool
    started: int
    timeout: int
    outcome: str | None = None
    id: int | None = None
    written: bool = False
    answered: bool = False
    cancelled_at: int | None = None


@dataclass
class Requests:
    """The host's request table: slots, order, timeouts, cancels and the time to answer them."""

    slots: int
    grace: int
    now: int = 0
    calls: list[Call] = field(default_factory=list)
    next_id: int = 2
    dead: bool = False
    notices: list[int] = field(default_factory=list)

    def used(self) -> int:
        return sum(not call.bypass and self.occupies(call) for call in self.calls)

    @staticmethod
    def occupies(call: Call) -> bool:
        if call.id is None or call.answered:
            return False
        return call.written or call.outcome is None

    def make(self, bypass: bool, timeout: int) -> None:
        self.calls.append(Call(len(self.calls), bypass, self.now, timeout))
        self.admit()

    def admit(self) -> None:
        for call in sorted(self.calls, key=lambda call: not call.bypass):
            waits = call.id is None and call.outcome is None
            if waits and (call.bypass or self.used() < self.slots):
                call.id = self.next_id
                self.next_id += 1

    def write(self) -> list[int]:
        """Write everything that may leave; the ids that leave, in order."""
        leaving = [call for call in self.calls if call.id is not None and not call.written and call.outcome is None]
        for call in leaving:
            call.written = True
        return sorted(call.id for call in leaving if call.id is not None)

    def give_up(self, call: Call, outcome: str) -> None:
        call.outcome = outcome
        if call.written:
            call.cancelled_at = self.now
            assert call.id is not None
            self.notices.append(call.id)
        self.admit()

    def cancel(self, number: int) -> None:
        call = self.calls[number]
        if not self.dead and call.outcome is None:
            self.give_up(call, "CancelledError")

    def answer(self, request_id: int, error: bool) -> None:
        for call in self.calls:
            if call.id == request_id and call.written and not call.answered and not self.dead:
                call.answered = True
                if call.outcome is None:
                    call.outcome = "RemoteError" if error else "result"
                self.admit()

    def pass_time(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        while not self.dead:
            due = [(call.started + call.timeout, call.number) for call in self.calls if call.outcome is None] + [
                (call.cancelled_at + self.grace, call.number)
                for call in self.calls
                if call.cancelled_at is not None and not call.answered
            ]
            due = [moment for moment in due if moment[0] <= end]
            if not due:
                break
            self.now, number = min(due)
            call = self.calls[number]
            if call.outcome is None:
                self.give_up(call, "TimedOutError")
            else:
                self.die()
        self.now = end

    def die(self) -> None:
        self.dead = True
        for call in self.calls:
            if call.outcome is None:
                call.outcome = "TimedOutError"
