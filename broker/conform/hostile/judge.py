"""What one run of a host with a hostile extension of API 0.3 says about the rules."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker import canonical
from broker.conform.findings import Findings
from broker.conform.hostile.log import Entry
from broker.conform.hostile.run_host import Run
from broker.errors import ERROR_TABLE, CanonicalError
from broker.limits import CONFORM_GONE_MS, CONFORM_TOGETHER_MS, MAX_CONFORM_STARTS
from broker.wire.octet.contract import METHODS, build_offer
from broker.wire.octet.models import InitializeRequest
from broker.wire.octet.schema import check
from broker.wire.quoting import quote

GONE_SECONDS: Final = CONFORM_GONE_MS / 1000
_TOGETHER_SECONDS: Final = CONFORM_TOGETHER_MS / 1000
_NEEDED: Final = ("OCTET_EXTENSION_NAME", "OCTET_EXTENSION_DIR", "OCTET_EXTENSION_MANIFEST", "OCTET_WORKSPACE")
# How a host has ended that did as its signal says: by it, or with the status that a shell gives for that.
_ENDED_AS_ASKED: Final = frozenset(
    status for number in (signal.SIGINT, signal.SIGTERM) for status in (-int(number), 128 + int(number))
)
_INVALID: Final = ERROR_TABLE["invalid_params"].code
_MISMATCH: Final = ERROR_TABLE["capability_mismatch"].code
_EXHAUSTED: Final = ERROR_TABLE["resource_exhausted"].code
_UNKNOWN: Final = ERROR_TABLE["unknown_method"].code

# The scenarios that a host must end its process for, and the rule of each.
ENDED: Final[Mapping[str, str]] = {
    "not-json": "octet.canonical.refused-forms",
    "white-space": "octet.canonical.no-whitespace",
    "key-order": "octet.canonical.key-order",
    "duplicate-key": "octet.canonical.duplicate-key",
    "byte-order-mark": "octet.canonical.byte-order-mark",
    "invalid-utf8": "octet.canonical.invalid-utf8",
    "carriage-return": "octet.framing.carriage-return",
    "empty-line": "octet.framing.empty-line",
    "over-bound": "octet.framing.over-bound",
    "not-an-object": "octet.envelope.not-an-object",
    "unknown-member": "octet.envelope.unknown-member",
    "error-pair": "octet.envelope.error-pair",
    "string-answer": "octet.envelope.response-string-id",
    "early-request": "octet.method.before-contract",
    "same-id": "octet.method.id-reuse",
    "notification-flood": "octet.method.notification-flood",
    "ends-output": "octet.process.output-closed",
    "other-version": "octet.selection.version",
    "unoffered": "octet.selection.not-offered",
    "drops-required": "octet.selection.missing-required",
    "raises-limit": "octet.selection.limit-over-offer",
    "answer-with-more": "octet.selection.response-shape",
    "other-tools": "octet.selection.tools-match-manifest",
    "bus-without-lifecycle": "octet.selection.bus-needs-lifecycle",
}
# The requests of "bus-refusals", the rule of each, and the codes that refuse it.
_REFUSALS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "publish-undeclared": ("octet.bus.publish-undeclared", (_INVALID,)),
    "foreign-topic": ("octet.bus.topic-owner", (_MISMATCH,)),
    "bad-topic": ("octet.bus.topic-form", (_INVALID,)),
    "secret-field": ("octet.bus.field-name-screened", (_INVALID,)),
    "stale-declare": ("octet.bus.binding-stale", (_MISMATCH,)),
    "stale-publish": ("octet.bus.binding-stale", (_MISMATCH,)),
    "declare-again": ("octet.bus.declare-once", (_INVALID,)),
    "payload-type": ("octet.bus.payload-types", (_INVALID,)),
    "payload-field": ("octet.bus.payload-types", (_INVALID,)),
    "payload-long": ("octet.bus.payload-string-bytes", (_EXHAUSTED,)),
    "payload-path": ("octet.bus.screen-path", (_INVALID,)),
    "forged": ("octet.bus.publish-identity", (_INVALID,)),
    "seventeenth": ("octet.bound.max-bus-subscriptions", (_EXHAUSTED,)),
}


def judge(run: Run, findings: Findings) -> None:
    """Judge one run by the rules it is about, and by those every run is about."""
    judge_ending(run, findings)
    if not run.log.of("start"):
        findings.failed("octet.initialize.first-request", f"the extension was never started; {run.ending}")
        return
    _judge_frames(run, findings)
    if run.scenario in ENDED:
        judge_ended(run, findings, ENDED[run.scenario])
        return
    judged = JUDGED.get(run.scenario)
    if judged is not None:
        judged(run, findings)


def judge_ending(run: Run, findings: Findings) -> None:
    """How the host itself ended, and what it left."""
    survives = run.status is not None and (0 <= run.status < 128 or (run.asked and run.status in _ENDED_AS_ASKED))
    findings.judge("octet.process.host-survives", survives, f"with {run.scenario}: {run.ending}")
    left = [pid for pid in run.log.living if pid not in _children(run)]
    what = f"with {run.scenario}: {len(left)} of its processes still ran after the host had ended"
    findings.judge("octet.process.nothing-left", not left, what)


def _children(run: Run) -> list[int]:
    return [entry.more["child"] for entry in run.log.of("child")]


def _judge_frames(run: Run, findings: Findings) -> None:
    for entry in run.log.of("frame"):
        text = entry.more["text"].encode("utf-8", "backslashreplace")
        if entry.more["size"] != len(text):
            continue  # only its beginning was kept
        try:
            canonical.decode(text)
        except CanonicalError as error:
            findings.failed("octet.canonical.encode", f"{error}: {quote(text)}")
        else:
            findings.passed("octet.canonical.encode")
    for entry in run.log.of("eof"):
        if entry.more["unterminated"]:
            findings.failed("octet.canonical.encode", f"{entry.more['unterminated']} bytes behind the last LF")


def gone_after(run: Run, fault: Entry) -> float | None:
    """Seconds from a fault to the end of its process; ``None`` if it never ended."""
    gone = run.log.gone_at.get(fault.pid)
    return None if gone is None else gone - fault.at


def ended_first(run: Run, fault: Entry) -> bool:
    """Whether the host ended of its own accord so soon that the process may have ended only for that."""
    gone = run.log.gone_at.get(fault.pid, run.ended_at)
    return run.status == 0 and run.ended_at - fault.at < GONE_SECONDS and gone >= run.ended_at - _TOGETHER_SECONDS


def methods_of(run: Run) -> list[str]:
    """The methods of everything a host asked and told, in order."""
    return [str(value["method"]) for _, value in run.log.frames() if isinstance(value, dict) and "method" in value]


def judge_ended(run: Run, findings: Findings, rule: str) -> None:
    """Whether the process was ended for its fault, and soon."""
    faults = run.log.of("fault")
    if not faults:
        findings.skipped(f"with {run.scenario} the host did not get that far", rule)
        return
    fault = faults[0]
    seconds = gone_after(run, fault)
    if ended_first(run, fault):
        findings.skipped(f"with {run.scenario} the host ended before it could be seen", rule)
        return
    if seconds is None or seconds > GONE_SECONDS:
        after = "never" if seconds is None else f"{seconds:.1f} s later"
        findings.failed(rule, f"with {run.scenario} the process was gone {after}, not within {GONE_SECONDS:g} s")
        return
    later = [
        value.get("method")
        for entry, value in run.log.frames()
        if entry.pid == fault.pid and entry.at > fault.at and isinstance(value, dict) and "method" in value
    ]
    asked = [method for method in later if method in ("tool/call", "bus/lifecycle", "hook/run", "shutdown")]
    if rule.startswith("octet.selection.") and asked:
        findings.failed(rule, f"with {run.scenario} the host went on with {', '.join(asked)}")
        return
    findings.passed(rule, f"gone after {seconds:.2f} s")


# -- an extension that does nothing wrong ------------------------------------------------------------------------------


def _judge_right(run: Run, findings: Findings) -> None:
    findings.judge("octet.shutdown.graceful", run.status == 0 or run.asked, f"without any fault: {run.ending}")
    start = run.log.of("start")[0]
    frames = [(entry, value) for entry, value in run.log.frames() if entry.pid == start.pid]
    first = frames[0][1] if frames else None
    is_initialize = isinstance(first, dict) and first.get("method") == "initialize"
    findings.judge("octet.initialize.first-request", is_initialize, f"the first frame is {quote(repr(first))}")
    if not isinstance(first, dict) or not is_initialize:
        return
    _judge_initialize(first.get("params"), findings)
    _judge_requests([value for _, value in frames if isinstance(value, dict)], findings)
    env = run.log.of("env")[0].more
    missing = [name for name in _NEEDED if not env.get(name)]
    missing += ["OCTET_EXTENSION_API_VERSION"] if env.get("OCTET_EXTENSION_API_VERSION") != "0.3" else []
    findings.judge("octet.process.environment-octet", not missing, f"missing or wrong: {', '.join(missing)}")
    leaked = start.more["secret"] is not None
    findings.judge(
        "octet.process.environment-cleared", not leaked, "a variable of the host alone reached the extension"
    )
    asked = any(isinstance(value, dict) and value.get("method") == "shutdown" for _, value in frames)
    findings.judge("octet.shutdown.order", asked, "the extension was ended and not asked to shut down")


def _judge_initialize(params: Any, findings: Findings) -> None:
    faults = check(InitializeRequest, params)
    findings.judge("octet.model.initialize-request", not faults, "; ".join(map(str, faults[:3])))
    contract = params.get("contract") if isinstance(params, dict) else None
    if not isinstance(contract, dict):
        return
    offer = build_offer()
    rule = "octet.capability.required-set-fixed"
    for member, expected in (
        ("required_capabilities", offer.required_capabilities),
        ("required_methods", offer.required_methods),
    ):
        found = contract.get(member)
        right = isinstance(found, list) and sorted(map(str, found)) == sorted(expected)
        findings.judge(rule, right, f"{member} is {found}")
    deferred = {"dynamic_tools", "context/collect", "tools/register", "tools/unregister"}
    offered: set[str] = set()
    for member in ("optional_capabilities", "optional_methods"):
        names = contract.get(member)
        offered |= {*map(str, names)} if isinstance(names, list) else set()
    findings.judge(rule, not deferred & offered, f"offered although deferred: {', '.join(sorted(deferred & offered))}")


def _judge_requests(values: list[dict[str, Any]], findings: Findings) -> None:
    requests = [value for value in values if "method" in value and "id" in value]
    ids = [value["id"] for value in requests]
    right = all(type(one) is int for one in ids) and len({*map(str, ids)}) == len(ids)
    findings.judge("octet.envelope.host-ids", right, f"the ids of its requests: {ids[:20]}")
    wrong = []
    for value in values:
        method = value.get("method")
        row = METHODS.get(str(method)) if method is not None else None
        if method is not None and (row is None or not row.from_host or row.notification is ("id" in value)):
            wrong.append(str(method))
    findings.judge("octet.method.only-selected-sent", not wrong, f"sent: {', '.join(wrong[:5])}")
    bound = any(
        value.get("method") == "bus/lifecycle" and value.get("params", {}).get("kind") == "binding" for value in values
    )
    offered = "event_bus" in str(values[0].get("params", {}).get("contract", {}).get("optional_capabilities"))
    if not offered:
        findings.skipped("the host offers no event_bus", "octet.method.bus-lifecycle")
        return
    findings.judge("octet.method.bus-lifecycle", bound, "event_bus was selected, and no binding was told")


# -- what it must answer -----------------------------------------------------------------------------------------------


def code_of(answer: dict[str, Any] | None) -> Any:
    """The code of the error that a request was answered with."""
    error = None if answer is None else answer.get("error")
    return error.get("code") if isinstance(error, dict) else None


def _judge_unknown(run: Run, findings: Findings) -> None:
    answers = run.log.answers()
    for request_id, method in (("q1", "no/such/method"), ("q2", "tool/call"), ("q3", "tools/register")):
        answer = answers.get(request_id)
        findings.judge("octet.method.unknown", code_of(answer) == _UNKNOWN, f"{method} was answered with {answer}")
    fault = run.log.of("fault")
    # Whoever answered the requests behind it has lived through the answer that nobody asked for.
    findings.judge("octet.envelope.response-unknown-id", not fault or "q3" in answers, "the stream did not live on")


def _judge_bus(run: Run, findings: Findings) -> None:
    answers = run.log.answers()
    rules = {rule for rule, _ in _REFUSALS.values()}
    others = ("octet.bus.admission-no-sequence", "octet.bus.subscribe-pending")
    if not run.log.of("fault"):
        findings.skipped("the host binds no bus", *rules, *others)
        return
    for request_id, (rule, codes) in _REFUSALS.items():
        answer = answers.get(request_id)
        findings.judge(rule, code_of(answer) in codes, f"{request_id} was answered with {answer}")
    good = answers.get("publish", {}).get("result")
    first = isinstance(good, dict) and good.get("sequence") == 1
    findings.judge(others[0], first, f"the first good publication was answered with {answers.get('publish')}")
    pending = answers.get("pending", {}).get("result")
    is_pending = isinstance(pending, dict) and pending.get("state") == "pending"
    findings.judge(others[1], is_pending, f"a subscription to an unknown topic was answered with {pending}")


def _judge_flood(run: Run, findings: Findings) -> None:
    rule = "octet.bus.wire-flow"
    if not run.log.of("fault"):
        findings.skipped("the host binds no bus", rule)
        return
    answered = len([request_id for request_id in run.log.answers() if str(request_id).startswith("q")])
    findings.judge(rule, answered >= 302, f"302 requests were sent, {answered} were answered")


# -- what it must live through -----------------------------------------------------------------------------------------


def judge_stderr(run: Run, findings: Findings) -> None:
    """Whether all of a flood of stderr was read."""
    flooded = bool(run.log.of("flooded"))
    findings.judge("octet.process.stderr-drained", flooded, "the extension was still writing when the host ended it")


def judge_gone(rule: str) -> Callable[[Run, Findings], None]:
    """Judges whether an extension was ended with its host."""

    def judged(run: Run, findings: Findings) -> None:
        left = [pid for pid in run.log.living if pid not in _children(run)]
        findings.judge(rule, not left, f"with {run.scenario} the extension outlived the host")

    return judged


def judge_children(run: Run, findings: Findings) -> None:
    """Whether what an extension started was ended with it."""
    left = [pid for pid in run.log.living if pid in _children(run)]
    rule = "octet.process.grandchildren"
    findings.judge(rule, not left, "what the extension had started outlived the host")


def judge_storm(run: Run, findings: Findings) -> None:
    """Whether an extension that dies is started at a bounded pace."""
    starts = len(run.log.of("start"))
    findings.judge("octet.process.restart-backoff", starts <= MAX_CONFORM_STARTS, f"it was started {starts} times")


def _judge_no_retry(run: Run, findings: Findings) -> None:
    starts = len(run.log.of("start"))
    findings.judge("octet.initialize.no-retry", starts == 1, f"it was started {starts} times")


JUDGED: Final[Mapping[str, Callable[[Run, Findings], None]]] = {
    "right": _judge_right,
    "unknown-things": _judge_unknown,
    "bus-refusals": _judge_bus,
    "publish-flood": _judge_flood,
    "stderr-flood": judge_stderr,
    "stops-reading": judge_gone("octet.process.stalled-reader"),
    "deaf": judge_gone("octet.shutdown.timeout"),
    "deaf-with-child": judge_children,
    "dies": judge_storm,
    "exits-at-once": _judge_no_retry,
}
"""The scenarios whose process need not be ended at once, and what is looked at instead."""
