"""What a run of conformance may do, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from broker.limits import CONFORM_ANSWER_MS, CONFORM_QUIET_MS, CONFORM_TOTAL_MS


@frozen(kw_only=True)
class ConformSettings:
    """How a program under test is treated.

    - ``calls`` are arguments by tool's name, used instead of made-up ones; on an MCP server a tool named here may be
      called although it does not say that it only reads, and with ``call_all`` any of them. With ``allow_calls`` false
      no tool is called at all.
    - ``events`` are payloads by topic, published on topics that an extension subscribes to.
    - ``source_root`` is a directory that a migration adapter is asked to read.
    - ``workspace`` is the directory the program works in; without one each process gets a new one with a few files.
    - ``answer_ms`` is the time for one answer, ``total_ms`` for everything about one program.
    - ``rules`` are the ids that are wanted; none means all. ``scenarios`` are the functions that are run after those
      that decide how to go on, by their names, or for a host the names of the hostile programs; none means all. Rules
      that only others look at are not seen then.
    """

    calls: Mapping[str, tuple[Any, ...]] = field(factory=dict)
    allow_calls: bool = True
    call_all: bool = False
    events: Mapping[str, dict[str, Any]] = field(factory=dict)
    source_root: str | None = None
    workspace: str | None = None
    answer_ms: int = CONFORM_ANSWER_MS
    quiet_ms: int = CONFORM_QUIET_MS
    total_ms: int = CONFORM_TOTAL_MS
    rules: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()

    def wants(self, scenario: str) -> bool:
        """Whether the scenario of this name is to be run."""
        return not self.scenarios or scenario in self.scenarios

    @property
    def answer_seconds(self) -> float:
        """Seconds for one answer."""
        return self.answer_ms / 1000

    @property
    def quiet_seconds(self) -> float:
        """Seconds in which nothing may come."""
        return self.quiet_ms / 1000
