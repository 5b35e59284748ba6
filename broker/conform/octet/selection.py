"""The answer to ``initialize``, by rule. The judgement is the host's own; this says which rule each fault is of."""

from __future__ import annotations

from typing import Any, Final

from broker.conform.findings import Findings
from broker.errors import BrokerError, Fault, NegotiationError
from broker.wire.octet.manifest_model import Manifest
from broker.wire.octet.models import ContractOffer
from broker.wire.octet.negotiation import Expectation, Selection, check_selection

_PREFIX: Final = "octet.selection."
_BY_TEXT: Final = (
    ("is unknown", "unknown-name"),
    ("is selected twice", "duplicate-name"),
    ("needs the capability provider_catalog", "stream-methods-together"),
    ("needs the capability", "method-without-capability"),
    ("was not offered", "not-offered"),
    ("is required", "missing-required"),
    ("has too many names", "name-count"),
    ("is too long", "name-count"),
    ("must not be empty", "name-count"),
    ("event_bus needs", "bus-needs-lifecycle"),
    ("'bus/subscribe' needs", "subscribe-needs-event"),
    ("session hooks", "hooks-need-pair"),
    ("'provider/", "stream-methods-together"),
)
JUDGED: Final = tuple(
    _PREFIX + words
    for words in (
        *("response-shape", "version", "schema", "encoding", "unknown-name", "duplicate-name", "deferred-name"),
        *("method-without-capability", "name-count", "limit-zero", "too-many-tools", "missing-required"),
        *("bus-needs-lifecycle", "subscribe-needs-event", "stream-methods-together", "hooks-need-pair"),
        *("deferred-contribution", "tools-match-manifest", "tool-name", "tool-description", "tool-parameters"),
        *("tool-output-schema", "provider-needs-contribution"),
    )
)
"""What a selection that is right has kept, whatever was offered."""


def judge_selection(
    result: Any, *, offer: ContractOffer, manifest: Manifest, findings: Findings, what: str
) -> Selection | None:
    """The selection in the result of ``initialize``; ``None``, and a failure of the rule it broke, if it is refused."""
    expectation = Expectation(
        tools=tuple(manifest.contributes.tools),
        session_hooks=manifest.session_hooks,
        deferred=manifest.deferred_contributions(),
    )
    try:
        selection = check_selection(result, offer=offer, expectation=expectation)
    except NegotiationError as error:
        for fault in error.faults:
            if "not a fraction" in fault.problem and findings.is_failed("octet.canonical.no-float"):
                continue  # which was said of its frame
            rule = selection_rule(fault, manifest)
            findings.failed(rule, f"{what}: {fault}")
        if not error.faults:
            findings.failed(_PREFIX + "response-shape", f"{what}: {error}")
        return None
    except BrokerError as error:
        findings.failed(_PREFIX + "response-shape", f"{what}: {error}")
        return None
    for rule in JUDGED:
        findings.passed(rule)
    return selection


def selection_rule(fault: Fault, manifest: Manifest) -> str:
    """The id of the rule that a fault of a selection breaks."""
    return _PREFIX + _words(fault, manifest)


def _words(fault: Fault, manifest: Manifest) -> str:
    path, problem = fault.path, fault.problem
    if path in ("api_version", "contract.schema", "contract.encoding") and "must be '" in problem:
        return {"api_version": "version"}.get(path, path.rpartition(".")[2])
    if path.startswith("contract.limits.") and fault.name != "invalid_params":
        return "limit-over-offer"
    if path.startswith("contract.limits.") and "an integer" not in problem and "missing" not in problem:
        return "limit-zero"
    if path == "contributes":
        return "deferred-contribution"
    if path.startswith("tools"):
        return _tool_words(fault)
    if path.startswith(("contract.capabilities", "contract.methods")):
        if "was not offered" in problem and "provider" in problem and not manifest.contributes.providers:
            return "provider-needs-contribution"
        if "deferred" in problem or "unavailable" in problem:
            return "deferred-name"
        return next((words for text, words in _BY_TEXT if text in problem), "response-shape")
    return "response-shape"


def _tool_words(fault: Fault) -> str:
    member = fault.path.partition("]")[2].removeprefix(".").partition(".")[0]
    if fault.name == "capability_mismatch":
        return "tools-match-manifest"
    if not member:
        return "too-many-tools" if fault.limit == "max_tools" else "response-shape"
    if "known member" in fault.problem or "is missing" in fault.problem:
        return "response-shape"
    return {
        "name": "tool-name",
        "description": "tool-description",
        "parameters": "tool-parameters",
        "output_schema": "tool-output-schema",
    }.get(member, "response-shape")
