"""Slow models of the feature-negotiated wire, written from its description alone: they import nothing of broker."""

from __future__ import annotations

from typing import Any

REQUIRED = ["request_cancellation", "content_parts"]
COMMON = """
request_progress progress_decoration artifacts lifecycle_events policy_intents dynamic_tools runtime_commands
semantic_ui editor_handoff terminal_input autocomplete dynamic_tool_renderers composer shortcuts session_entries
message_injection lifecycle_events_v2 active_tools terminal_handoff session_context model_catalog agent_sessions
agent_model_selection_v1 approvals secrets system_prompt_read delegation_telemetry_v1
""".split()
LATER = """
resource_refs_v1 operation_descriptors_v1 tool_prompt_metadata_v1 autocomplete_edit_v1 tool_composition_v1
bulk_objects_v1 remote_ui session_control_v1 session_compaction_v1 resource_paths_v1 before_prompt_state_v1
pipeline_hooks_v1 compaction_strategy cache_warming_decision agent_session_events_v1 agent_session_lifetime_v1
""".split()
NEEDS = {
    "approvals": "policy_intents",
    "agent_model_selection_v1": "agent_sessions",
    "agent_session_events_v1": "agent_sessions",
    "agent_session_lifetime_v1": "agent_sessions",
    "autocomplete_edit_v1": "autocomplete",
    "session_compaction_v1": "session_control_v1",
}


def judge(version: str, offered: list[str], concurrency: int, declared: dict[str, list[str]], answer: Any) -> Any:
    """What an answer to initialize comes to: the agreed features and concurrency, or the name of the refusal.

    ``answer`` has the right types; what is in it may be wrong in any way.
    """
    if set(answer) - {"api_version", "tools", "commands", "protocol", "tool_renderers", "shortcuts"}:
        return "invalid_params"
    if answer["api_version"] != version:
        return "version_mismatch"
    features: list[str] = []
    agreed = 1
    if version == "0.1":
        if "protocol" in answer or "shortcuts" in answer:
            return "invalid_params"
    else:
        if "protocol" not in answer:
            return "invalid_params"
        protocol = answer["protocol"]
        if protocol["version"] != version:
            return "version_mismatch"
        features = protocol["features"]
        exists = REQUIRED + COMMON + (LATER if version == "0.4" else [])
        for name in features:
            if features.count(name) > 1 or name not in exists or name not in REQUIRED + offered:
                return "capability_mismatch"
        for name in REQUIRED:
            if name not in features:
                return "capability_mismatch"
        for name in features:
            if name in NEEDS and NEEDS[name] not in features:
                return "capability_mismatch"
        if protocol["limits"]["max_concurrent_requests"] == 0:
            return "invalid_params"
        agreed = min(concurrency, protocol["limits"]["max_concurrent_requests"])
    tools = [tool["name"] for tool in answer["tools"]]
    if len(tools) > 256 or len(answer["commands"]) > 256:
        return "resource_exhausted"
    for names, wanted, free in (
        (tools, declared["tools"], "dynamic_tools" in features),
        (answer["commands"], declared["commands"], "runtime_commands" in features),
    ):
        if len(set(names)) < len(names):
            return "capability_mismatch"
        if not free and sorted(names) != sorted(wanted):
            return "capability_mismatch"
    return sorted(features), agreed


class Requests:
    """The requests of both sides. Every method gives the lines the host writes for it, in order.

    A line is ``("call", id)``, ``("cancel", id)``, ``("result", child)`` or ``("refused", child, code)``. Everything
    that may be written is written at once.
    """

    def __init__(self, version: str, slots: int) -> None:
        self.version = version
        self.slots = slots
        self.next_id = 2
        self.waiting: list[int] = []  # calls by number
        self.open: dict[int, int] = {}  # id -> call
        self.cancelled: dict[int, int] = {}  # id -> time left
        self.children: dict[Any, int | None] = {}  # open child -> parent id
        self.used: set[Any] = set()
        self.ended: dict[int, str] = {}  # call -> how
        self.calls = 0
        self.closed = False

    def call(self) -> list[Any]:
        if self.closed:
            return []
        self.waiting.append(self.calls)
        self.calls += 1
        return self._send()

    def _send(self) -> list[Any]:
        lines: list[Any] = []
        while self.waiting and len(self.open) + len(self.cancelled) < self.slots:
            self.open[self.next_id] = self.waiting.pop(0)
            lines.append(("call", self.next_id))
            self.next_id += 1
        return lines

    def _settle(self, request: int, how: str) -> list[Any]:
        lines: list[Any] = []
        for child, parent in list(self.children.items()):
            if parent == request:
                del self.children[child]
                lines.append(("refused", child, -32800))
        self.ended[self.open.pop(request)] = how
        return lines

    def cancel(self, number: int) -> list[Any]:
        if self.closed or number in self.ended or number >= self.calls:
            return []
        if number in self.waiting:
            self.waiting.remove(number)
            self.ended[number] = "cancelled"
            return []
        request = next(key for key, value in self.open.items() if value == number)
        lines = [] if self.version == "0.1" else [("cancel", request)]
        lines += self._settle(request, "cancelled")
        self.cancelled[request] = 2_000
        return lines

    def answer(self, request: int, how: str) -> list[Any]:
        if self.closed:
            return []
        lines: list[Any] = []
        if request in self.open:
            lines += self._settle(request, how)
        elif request in self.cancelled:
            del self.cancelled[request]
        return lines + self._send()

    def ask(self, child: Any, parent: int | None) -> list[Any]:
        """An input request, which 0.1 does not have."""
        if self.closed:
            return []
        if self.version == "0.1":
            return [("refused", child, -32601)]
        if child in self.used or len(self.children) == 128:
            return self._close()
        self.used.add(child)
        if parent is None or parent < 1 or parent >= self.next_id:
            return [("refused", child, -32602)]
        if parent not in self.open:
            return [("refused", child, -32800)]
        self.children[child] = parent
        return []

    def take_back(self, child: Any) -> list[Any]:
        if self.closed or child not in self.children:
            return []
        del self.children[child]
        return [("refused", child, -32800)]

    def reply(self, child: Any) -> list[Any]:
        if self.closed or child not in self.children:
            return []
        del self.children[child]
        return [("result", child)]

    def wait(self, milliseconds: int) -> list[Any]:
        for request in self.cancelled:
            self.cancelled[request] -= milliseconds
        if not self.closed and any(left <= 0 for left in self.cancelled.values()):
            return self._close()
        return []

    def _close(self) -> list[Any]:
        for number in [*self.open.values(), *self.waiting]:
            self.ended[number] = "closed"
        self.waiting, self.open, self.cancelled, self.children = [], {}, {}, {}
        self.closed = True
        return []
