"""What one run of a host with a hostile MCP server says about the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.conform.findings import Findings
from broker.conform.hostile.judge import judge_ended, judge_ending, methods_of
from broker.conform.hostile.run_host import Run
from broker.limits import MAX_CONFORM_STARTS
from broker.wire.mcp.settings import PROTOCOL_VERSION
from broker.wire.quoting import quote

ENDED: Final[Mapping[str, str]] = {
    "mcp-version": "odek.transport.compatible-version",
    "mcp-bad-name": "odek.names.one-bad-name",
    "mcp-name-twice": "odek.names.duplicate",
    "mcp-same-cursor": "odek.transport.pagination",
    "mcp-long-line": "odek.limits.line-over-bound",
}
"""The scenarios that a host must end the server for, and the rule of each. That takes the time of its grace periods."""

_STARTED: Final = "odek.transport.initialize-version"
_METHOD_NOT_FOUND: Final = -32601


def judge_server(run: Run, findings: Findings) -> None:
    """Judge one run by the rules it is about, and by those every run is about."""
    judge_ending(run, findings)
    if not run.log.of("start"):
        findings.failed(_STARTED, f"the server was never started; {run.ending}")
        return
    for entry in run.log.of("frame"):
        text = entry.more["text"]
        try:
            right = isinstance(json.loads(text), dict)
        except ValueError:
            right = False
        findings.judge("odek.transport.line", right, f"the host wrote {quote(text)}")
    if run.scenario in ENDED:
        judge_ended(run, findings, ENDED[run.scenario])
    elif run.scenario in JUDGED:
        JUDGED[run.scenario](run, findings)


def _judge_right(run: Run, findings: Findings) -> None:
    first = next((value for _, value in run.log.frames()), None)
    params = first.get("params", {}) if isinstance(first, dict) and first.get("method") == "initialize" else {}
    version = params.get("protocolVersion") if isinstance(params, dict) else None
    findings.judge(_STARTED, version == PROTOCOL_VERSION, f"the first message is {quote(repr(first))}")
    methods = methods_of(run)
    told = "notifications/initialized" in methods
    findings.judge("odek.transport.initialized", told, f"the host sent {', '.join(methods)}")
    findings.judge("odek.transport.tools-list", "tools/list" in methods, f"the host sent {', '.join(methods)}")
    leaked = run.log.of("start")[0].more["secret"] is not None
    findings.judge("odek.config.env-secrets", not leaked, "a variable of the host alone reached the server")


def _judge_answers(run: Run, findings: Findings) -> None:
    answers: dict[Any, dict[str, Any]] = run.log.answers()
    ping = answers.get("ping")
    findings.judge("odek.transport.ping", ping is not None and ping.get("result") == {}, f"ping: {ping}")
    other = answers.get("sampling", {})
    error = other.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    right = code == _METHOD_NOT_FOUND
    findings.judge("odek.transport.other-requests", right, f"sampling/createMessage was answered with {other}")


def _judge_listed(rule: str) -> Callable[[Run, Findings], None]:
    def judged(run: Run, findings: Findings) -> None:
        methods = methods_of(run)
        findings.judge(rule, "tools/list" in methods, f"with {run.scenario} the host only sent {', '.join(methods)}")

    return judged


def _judge_deaf(run: Run, findings: Findings) -> None:
    children = [entry.more["child"] for entry in run.log.of("child")]
    left = run.log.living
    server = [pid for pid in left if pid not in children]
    findings.judge("odek.transport.shutdown", not server, "the server outlived the host")
    findings.judge(
        "odek.transport.own-group", not {*left} & {*children}, "what the server had started outlived the host"
    )


def _judge_storm(run: Run, findings: Findings) -> None:
    starts = len(run.log.of("start"))
    findings.judge("odek.transport.eof", starts <= MAX_CONFORM_STARTS, f"it was started {starts} times")


JUDGED: Final[Mapping[str, Callable[[Run, Findings], None]]] = {
    "mcp-right": _judge_right,
    "mcp-asks": _judge_answers,
    "mcp-banner": _judge_listed("odek.transport.junk-line"),
    "mcp-stderr-flood": _judge_listed("odek.transport.stderr-drained"),
    "mcp-deaf": _judge_deaf,
    "mcp-exits-at-once": _judge_storm,
}
"""The other scenarios, and what is looked at in them."""
