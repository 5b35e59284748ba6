"""Who decides whether a server may be started and a tool be offered: the host, through one callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from broker.host.outcome import Outcome
from broker.wire.odek.approval import ApprovalRequest

Approve: TypeAlias = Callable[[ApprovalRequest], Outcome[bool]]
"""Asked once for each request; settles with the decision. An error counts as a refusal."""


def refuse_all(request: ApprovalRequest) -> Outcome[bool]:
    """The default of a host that has no callback: what needs approval does not get it."""
    outcome: Outcome[bool] = Outcome()
    outcome.succeed(False)
    return outcome
