"""Everything that is tried with one extension of API 0.3, and in which order."""

from __future__ import annotations

from typing import Final

from broker.conform.bench import Scenario, run_scenarios
from broker.conform.octet import bus, calls, endings, framing, services
from broker.conform.octet.bench import OctetBench
from broker.conform.rules import seen
from broker.conform.rules_octet import OCTET_RULES


async def unknown_method_and_sigterm(bench: OctetBench) -> None:
    """Ask for a method that does not exist, then send SIGTERM."""
    async with bench.process() as peer:
        if await bench.start(peer):
            await calls.unknown_method(bench, peer)
            await endings.sigterm(bench, peer)


# The longest first: they run at once, as many as may.
SCENARIOS: Final[tuple[Scenario[OctetBench], ...]] = (
    bus.take_part,
    calls.cancel_calls,
    services.session_hooks,
    services.migrate,
    services.provide,
    framing.lower_limits,
    endings.bare_offer,
    unknown_method_and_sigterm,
)


async def conduct(bench: OctetBench) -> None:
    """Try everything. An extension that does not start is not looked at further."""
    started = await endings.start_and_shutdown(bench)
    if started:
        # What these find out decides how the others go about it.
        await run_scenarios(bench, (framing.in_pieces,))
        await run_scenarios(bench, (calls.call_tools,))
        await run_scenarios(bench, SCENARIOS)
        for rule in (*seen(OCTET_RULES), "octet.framing.lf-terminated", "octet.envelope.id-exact"):
            bench.findings.passed(rule)
    else:
        bench.findings.skipped("the extension did not start", *OCTET_RULES)
