"""What the tests of MCP servers in memory share."""

from __future__ import annotations

from broker.host import Outcome
from broker.host.notices import HealthChanged, Started
from broker.testing import MemorySession
from broker.wire.odek.approval import ApprovalRequest


class Asked:
    """Keeps every approval open until the test decides it."""

    def __init__(self) -> None:
        self.requests: list[tuple[ApprovalRequest, Outcome[bool]]] = []

    def __call__(self, request: ApprovalRequest) -> Outcome[bool]:
        outcome: Outcome[bool] = Outcome()
        self.requests.append((request, outcome))
        return outcome

    def decide(self, world: MemorySession, *decisions: bool) -> list[str]:
        """Decide what was asked, in order; what that was about."""
        about = []
        for decision in decisions:
            request, outcome = self.requests.pop(0)
            about.append(request.tool or request.server)
            outcome.succeed(decision)
            world.run()
        return about


def health(world: MemorySession, name: str = "srv") -> list[str]:
    return [n.health.value for n in world.notices if isinstance(n, HealthChanged) and n.extension == name]


def started(world: MemorySession, name: str = "srv") -> list[tuple[str, ...]]:
    return [n.tools for n in world.notices if isinstance(n, Started) and n.extension == name]
