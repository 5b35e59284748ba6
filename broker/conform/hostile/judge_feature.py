"""What one run of a host with a hostile extension of API 0.1, 0.2 or 0.4 says about the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.conform.findings import Findings
from broker.conform.hostile import judge
from broker.conform.hostile.feature_program import VERSIONS
from broker.conform.hostile.run_host import Run
from broker.limits import MAX_FEATURE_LINE_BYTES
from broker.wire.feature.features import REQUIRED_FEATURES
from broker.wire.quoting import quote

_UNKNOWN_METHOD: Final = -32601
_LIVES_ON: Final = "octet.envelope.response-unknown-id"
_RESULT: Final = "octet.legacy.tool-result"

ENDED: Final[Mapping[str, str]] = {
    "v04-not-json": "octet.legacy.bad-line",
    "v02-not-an-object": "octet.legacy.bad-line",
    "v01-string-answer": "octet.legacy.bad-line",
    "v04-long-line": "octet.legacy.line-bound",
    "v02-other-version": "octet.version.reply-mismatch",
    "v04-answer-with-more": "octet.legacy.unknown-answer-member",
    "v04-other-tools": "octet.legacy.tools-and-commands",
    "v02-unoffered": "octet.legacy.features",
    "v04-drops-required": "octet.legacy.features",
    "v04-no-concurrency": "octet.legacy.concurrency",
    "v01-protocol": "octet.legacy.v01-frozen",
    "v04-undeclared": "octet.legacy.undeclared-contribution",
    "v02-notification-flood": "octet.legacy.dropped-notifications",
}
"""The scenarios that a host must end its process for, and the rule of each."""


def judge_feature(run: Run, findings: Findings) -> None:
    """Judge one run by the rules it is about, and by those every run is about."""
    judge.judge_ending(run, findings)
    if not run.log.of("start"):
        version = VERSIONS[run.scenario.partition("-")[0]]
        reason = f"the host started no extension of API {version}"
        findings.skipped(reason, *([ENDED[run.scenario]] if run.scenario in ENDED else []))
        return
    for entry in run.log.of("frame"):
        text = entry.more["text"]
        small = entry.more["size"] < MAX_FEATURE_LINE_BYTES
        try:
            right = small and (entry.more["size"] > len(text.encode()) or isinstance(json.loads(text), dict))
        except ValueError:
            right = False
        findings.judge("octet.legacy.framing", right, f"the host wrote {quote(text)}")
    if run.scenario in ENDED:
        judge.judge_ended(run, findings, ENDED[run.scenario])
    elif run.scenario in JUDGED:
        JUDGED[run.scenario](run, findings)


def _judge_right(run: Run, findings: Findings) -> None:
    first = next((value for _, value in run.log.frames()), None)
    params = first.get("params") if isinstance(first, dict) and first.get("method") == "initialize" else None
    version = VERSIONS[run.scenario.partition("-")[0]]
    right = isinstance(params, dict) and params.get("api_version") == version
    protocol = params.get("protocol") if isinstance(params, dict) else None
    if version == "0.1":
        right = right and protocol is None
    else:
        required = protocol.get("required_features") if isinstance(protocol, dict) else None
        right = right and isinstance(required, list) and {*map(str, required)} == {*REQUIRED_FEATURES}
    findings.judge("octet.legacy.initialize", right, f"the first message is {quote(repr(first))}")
    asked = "shutdown" in judge.methods_of(run)
    findings.judge("octet.legacy.shutdown", asked, "the extension was ended and not asked to shut down")


def _judge_unknown(run: Run, findings: Findings) -> None:
    answers = run.log.answers()
    for request_id, method in (("q1", "no/such/method"), ("q2", "bus/publish")):
        answer = answers.get(request_id)
        right = judge.code_of(answer) == _UNKNOWN_METHOD
        findings.judge("octet.legacy.unknown-method", right, f"{method} was answered with {answer}")
    findings.judge(_LIVES_ON, "q2" in answers, f"with {run.scenario} the stream did not live on")


def _when_called(rule: str, judged: Callable[[Run, Findings], None]) -> Callable[[Run, Findings], None]:
    """Judge a scenario that needs a call of the tool, which only some hosts' commands make."""

    def wrapped(run: Run, findings: Findings) -> None:
        if run.log.of("called") or run.log.of("fault"):
            judged(run, findings)
        else:
            findings.skipped("the host called no tool", rule)

    return wrapped


def _judge_lives_on(rule: str) -> Callable[[Run, Findings], None]:
    def judged(run: Run, findings: Findings) -> None:
        answer: dict[str, Any] | None = run.log.answers().get("after")
        findings.judge(rule, answer is not None, f"with {run.scenario} the stream did not live on")

    return _when_called(rule, judged)


_GONE: Final = "octet.cancel.grace"
JUDGED: Final[Mapping[str, Callable[[Run, Findings], None]]] = {
    "v01-right": _judge_right,
    "v02-right": _judge_right,
    "v04-right": _judge_right,
    "v04-unknown-things": _judge_unknown,
    "v04-bad-result": _judge_lives_on(_RESULT),
    "v02-answers-twice": _judge_lives_on("octet.method.answered-once"),
    "v04-ignores-cancel": _when_called(_GONE, judge.judge_gone(_GONE)),
    "v04-dies-in-call": judge.judge_storm,
    "v04-dies": judge.judge_storm,
    "v04-stderr-flood": judge.judge_stderr,
    "v02-stays": judge.judge_gone("octet.shutdown.timeout"),
    "v04-deaf": judge.judge_children,
}
"""The other scenarios, and what is looked at in them."""
