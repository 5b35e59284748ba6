"""Everything that is tried with one extension of API 0.3, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from broker.conform.octet import bus, calls, endings, framing, services
from broker.conform.octet.bench import OctetBench
from broker.conform.rules_octet import OCTET_RULES
from broker.limits import MAX_CONFORM_PROCESSES

Scenario = Callable[[OctetBench], Awaitable[None]]


async def _unknown_method_and_sigterm(bench: OctetBench) -> None:
    async with bench.process() as peer:
        if await bench.start(peer):
            await calls.unknown_method(bench, peer)
            await endings.sigterm(bench, peer)


# The longest first: they run at once, as many as may.
SCENARIOS: Final[tuple[Scenario, ...]] = (
    bus.take_part,
    calls.cancel_calls,
    services.session_hooks,
    services.migrate,
    services.provide,
    framing.lower_limits,
    endings.bare_offer,
    _unknown_method_and_sigterm,
)
# Rules that are kept by everything that was seen, unless something broke them.
_SEEN: Final = tuple(rule.id for rule in OCTET_RULES.values() if rule.how == "every line of every process is looked at")


async def conduct(bench: OctetBench) -> None:
    """Try everything. An extension that does not start is not looked at further."""
    started = await endings.start_and_shutdown(bench)
    if started:
        # What these find out decides how the others go about it.
        await framing.in_pieces(bench)
        await calls.call_tools(bench)
        room = asyncio.Semaphore(MAX_CONFORM_PROCESSES)

        async def run(scenario: Scenario) -> None:
            async with room:
                await scenario(bench)

        async with asyncio.TaskGroup() as group:
            for scenario in SCENARIOS:
                group.create_task(run(scenario))
        for rule in (*_SEEN, "octet.framing.lf-terminated", "octet.envelope.id-exact"):
            bench.findings.passed(rule)
    else:
        bench.findings.skipped("the extension did not start", *OCTET_RULES)
