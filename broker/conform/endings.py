"""How an extension ends, on any wire: it is shut down, its input ends, it gets a signal."""

from __future__ import annotations

import signal
from typing import Any, Final

from broker.conform.bench import ExtensionBench
from broker.conform.peer import Call, Peer
from broker.limits import EXIT_GRACE_MS, SHUTDOWN_TIMEOUT_MS

_EXIT_SECONDS: Final = EXIT_GRACE_MS / 1000
_SHUTDOWN_SECONDS: Final = SHUTDOWN_TIMEOUT_MS / 1000
_LEFT: Final = "octet.process.nothing-left"


async def shut_down(bench: ExtensionBench[Any], peer: Peer, rule: str, *, what: str = "shutdown") -> Call | None:
    """Ask for ``shutdown``; the answered call, or ``None`` and a failure of ``rule``. The process's end is judged.

    ``what`` is what evidence calls it.
    """
    findings = bench.findings
    peer.may_end = True
    call = await peer.ask("shutdown", {}, _SHUTDOWN_SECONDS)
    if call.answer is None:
        bench.no_answer(peer, rule, what, _SHUTDOWN_SECONDS)
        findings.skipped("shutdown was not answered", "octet.shutdown.graceful", "octet.shutdown.exit-status", _LEFT)
        return None
    if await bench.judge_exit(peer, "octet.shutdown.graceful", _EXIT_SECONDS, f"its answer to {what}"):
        status = peer.probe.exit_status
        findings.judge("octet.shutdown.exit-status", status == 0, f"after {what} {peer.probe.ending()}")
        await bench.judge_left(peer, _LEFT, what)
    else:
        findings.skipped("the process did not end", "octet.shutdown.exit-status", _LEFT)
    return call


async def shut_down_after_work(bench: ExtensionBench[Any], peer: Peer, rule: str) -> None:
    """The same with a process whose tools were called, if it is not busy with one: what they started has to end too."""
    if not peer.blamed and not peer.probe.output_ended and peer.idle:
        await shut_down(bench, peer, rule, what="shutdown, with its tools called before it,")


async def end_input(bench: ExtensionBench[Any], peer: Peer) -> None:
    """Close the stdin of a process."""
    peer.probe.close_stdin()
    await bench.judge_exit(peer, "octet.process.exit-on-eof", _EXIT_SECONDS, "the end of its input")


async def send_sigterm(bench: ExtensionBench[Any], peer: Peer) -> None:
    """Send SIGTERM to a process."""
    peer.probe.signal(signal.SIGTERM)
    await bench.judge_exit(peer, "octet.process.exit-on-sigterm", _EXIT_SECONDS, "SIGTERM")
