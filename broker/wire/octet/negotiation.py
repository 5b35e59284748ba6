"""The host's judgement of an extension's answer to ``initialize``.

Nothing is intersected, downgraded or repaired: the selection is right in every point, or the start is refused with the
error the first fault names. The steps run in a fixed order, and all faults of the step that fails are reported.

Source: octet reference, sections "Capabilities", "Methods and terminal semantics", "Errors" and the models
``ContractSelection`` and ``ToolDefinition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from broker.errors import Fault, NegotiationError
from broker.limits import LIMITS
from broker.wire.octet.catalogue import tool_faults
from broker.wire.octet.contract import CAPABILITIES, METHODS, DefaultOffer, Status, limit_faults
from broker.wire.octet.models import (
    API_VERSION,
    ENCODING,
    SCHEMA,
    ContractOffer,
    ContractSelection,
    InitializeResponse,
    ProtocolLimits,
    ToolDefinition,
)
from broker.wire.octet.schema import decode, over, refuse
from broker.wire.quoting import quote, utf8_length


@frozen(kw_only=True)
class Expectation:
    """What the manifest promises of the process that is starting.

    ``tools`` are the declared tool names, ``session_hooks`` whether both session hooks are declared, and ``deferred``
    the words for declared contributions this wire does not have (such as ``commands``); any of those fails the start.
    """

    tools: tuple[str, ...] = ()
    session_hooks: bool = False
    deferred: tuple[str, ...] = ()


@frozen(kw_only=True)
class Selection:
    """The contract of one process generation: everything either side may use, and the complete tool catalogue."""

    capabilities: frozenset[str]
    methods: frozenset[str]
    limits: ProtocolLimits
    tools: tuple[ToolDefinition, ...]


def check_selection(result: Any, *, offer: ContractOffer, expectation: Expectation) -> Selection:
    """The selection in the result of ``initialize``, or :class:`~broker.errors.NegotiationError`.

    The error's ``name`` is ``version_mismatch``, ``capability_mismatch``, ``invalid_params`` or ``resource_exhausted``;
    ``faults`` are those of the first step that found any.
    """
    response = decode(InitializeResponse, result, what="result of initialize", error=NegotiationError)
    for faults in _steps(response, offer, expectation):
        if faults:
            refuse(faults, what="result of initialize", error=NegotiationError)
    contract = response.contract
    return Selection(
        capabilities=frozenset(contract.capabilities),
        methods=frozenset(contract.methods),
        limits=contract.limits,
        tools=response.tools,
    )


def _steps(response: InitializeResponse, offer: ContractOffer, expectation: Expectation) -> Iterator[list[Fault]]:
    """The faults of each step in turn; a step may rely on all before it having found none."""
    contract = response.contract
    yield _literal("api_version", response.api_version, API_VERSION, "version_mismatch")
    yield _literal("contract.schema", contract.schema, SCHEMA, "version_mismatch")
    yield _literal("contract.encoding", contract.encoding, ENCODING, "invalid_params")
    yield from _names("contract.capabilities", contract.capabilities, CAPABILITIES, "MAX_CAPABILITIES")
    yield from _names("contract.methods", contract.methods, METHODS, "MAX_METHODS")
    yield _usable(contract)
    yield _methods_without_capability(contract)
    yield limit_faults(contract.limits, "contract.limits")
    yield _tool_count(response)
    yield _offered(
        "contract.capabilities", contract.capabilities, offer.required_capabilities, offer.optional_capabilities
    )
    yield _offered("contract.methods", contract.methods, offer.required_methods, offer.optional_methods)
    yield _within_offer(contract.limits, offer.limits)
    yield _bus(contract)
    yield _providers(contract)
    yield _session_hooks(contract, expectation)
    yield [_mismatch("contributes", f"{word} is not available on this wire") for word in expectation.deferred]
    yield _tool_names(response.tools, expectation)
    yield tool_faults(response.tools)


def _mismatch(path: str, problem: str) -> Fault:
    return Fault(path, problem, "capability_mismatch")


def _literal(path: str, value: str, expected: str, name: str) -> list[Fault]:
    return [] if value == expected else [Fault(path, f"must be {quote(expected)}, not {quote(value)}", name)]


def _names(path: str, names: tuple[str, ...], known: Iterable[str], count_limit: str) -> Iterator[list[Fault]]:
    name_limit = "MAX_CAPABILITY_NAME_BYTES" if known is CAPABILITIES else "MAX_METHOD_NAME_BYTES"
    if len(names) > LIMITS[count_limit].value:
        yield [over(path, "has too many names", count_limit, len(names))]
    yield [Fault(f"{path}[{index}]", "must not be empty") for index, name in enumerate(names) if not name]
    yield [
        over(f"{path}[{index}]", "is too long", name_limit, size)
        for index, name in enumerate(names)
        if (size := utf8_length(name)) > LIMITS[name_limit].value
    ]
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name not in known:
            faults.append(_mismatch(f"{path}[{index}]", f"{quote(name)} is unknown"))
        elif name in seen:
            faults.append(_mismatch(f"{path}[{index}]", f"{quote(name)} is selected twice"))
        seen.add(name)
    yield faults


def _usable(contract: ContractSelection) -> list[Fault]:
    faults: list[Fault] = []
    for index, name in enumerate(contract.capabilities):
        capability = CAPABILITIES[name]
        if capability.status is Status.DEFERRED or capability.offer is DefaultOffer.UNAVAILABLE:
            faults.append(_mismatch(f"contract.capabilities[{index}]", f"{quote(name)} is deferred"))
    for index, name in enumerate(contract.methods):
        if METHODS[name].status is Status.DEFERRED:
            faults.append(_mismatch(f"contract.methods[{index}]", f"{quote(name)} is deferred"))
    return faults


def _methods_without_capability(contract: ContractSelection) -> list[Fault]:
    return [
        _mismatch(f"contract.methods[{index}]", f"{quote(name)} needs the capability {METHODS[name].capability}")
        for index, name in enumerate(contract.methods)
        if METHODS[name].capability not in contract.capabilities
    ]


def _tool_count(response: InitializeResponse) -> list[Fault]:
    count, maximum = len(response.tools), response.contract.limits.max_tools
    if count <= maximum:
        return []
    return [Fault("tools", "has more tools than were selected", "resource_exhausted", "max_tools", count, maximum)]


def _offered(path: str, names: tuple[str, ...], required: tuple[str, ...], optional: tuple[str, ...]) -> list[Fault]:
    faults = [
        _mismatch(f"{path}[{index}]", f"{quote(name)} was not offered")
        for index, name in enumerate(names)
        if name not in required and name not in optional
    ]
    return faults + [_mismatch(path, f"{quote(name)} is required") for name in required if name not in names]


def _within_offer(selected: ProtocolLimits, offered: ProtocolLimits) -> list[Fault]:
    named = (
        ("max_frame_bytes", selected.max_frame_bytes, offered.max_frame_bytes),
        ("max_concurrent_requests", selected.max_concurrent_requests, offered.max_concurrent_requests),
        ("max_tools", selected.max_tools, offered.max_tools),
    )
    return [
        Fault(f"contract.limits.{name}", "is above the offer", "capability_mismatch", name, value, maximum)
        for name, value, maximum in named
        if value > maximum
    ]


def _bus(contract: ContractSelection) -> list[Fault]:
    faults: list[Fault] = []
    if "event_bus" in contract.capabilities and "bus/lifecycle" not in contract.methods:
        faults.append(_mismatch("contract.methods", "event_bus needs 'bus/lifecycle'"))
    if "bus/subscribe" in contract.methods and "bus/event" not in contract.methods:
        faults.append(_mismatch("contract.methods", "'bus/subscribe' needs 'bus/event'"))
    return faults


def _providers(contract: ContractSelection) -> list[Fault]:
    """Streams and authorisations are about providers of the catalogue, and a stream needs all of its methods."""
    faults: list[Fault] = []
    stream = ("provider/cancel", "provider/event", "provider/stream")
    chosen = [name for name in stream if name in contract.methods]
    auth = [name for name in ("provider/auth/request", "provider/auth/revoke") if name in contract.methods]
    if chosen:
        missing = (name for name in stream if name not in chosen)
        faults += [_mismatch("contract.methods", f"{quote(chosen[0])} needs {quote(name)}") for name in missing]
    faults += [
        _mismatch("contract.capabilities", f"{quote(name)} needs the capability provider_catalog")
        for name in (*chosen[:1], *auth[:1])
        if "provider_catalog" not in contract.capabilities
    ]
    return faults


def _session_hooks(contract: ContractSelection, expectation: Expectation) -> list[Fault]:
    declared = expectation.session_hooks
    declares = "declares" if declared else "does not declare"
    return [
        _mismatch(
            path, f"{quote(name)} is {'' if selected else 'not '}selected, the manifest {declares} the session hooks"
        )
        for path, name, selected in (
            ("contract.capabilities", "lifecycle_events", "lifecycle_events" in contract.capabilities),
            ("contract.methods", "hook/run", "hook/run" in contract.methods),
        )
        if selected is not declared
    ]


def _tool_names(tools: tuple[ToolDefinition, ...], expectation: Expectation) -> list[Fault]:
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            faults.append(_mismatch(f"tools[{index}].name", f"{quote(tool.name)} appears twice"))
        elif tool.name not in expectation.tools:
            faults.append(_mismatch(f"tools[{index}].name", f"{quote(tool.name)} is not in the manifest"))
        seen.add(tool.name)
    missing = (name for name in expectation.tools if name not in seen)
    return faults + [_mismatch("tools", f"{quote(name)} of the manifest is missing") for name in missing]
