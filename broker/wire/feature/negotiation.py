"""The offer in ``initialize`` and the host's judgement of the answer.

0.1 has no protocol object on either side. From 0.2 on the host offers features and a concurrency; the answer selects
features, and a concurrency that is capped at the offer. Everything else is right in every point, or the start fails
with the error that the first fault names.

Source: octet notes, section 5; octet reference, "Version policy".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from attrs import field, frozen

from broker.errors import Fault, NegotiationError
from broker.limits import (
    MAX_COMMANDS,
    MAX_CONCURRENT_REQUESTS,
    MAX_MANIFEST_IDENTIFIER_BYTES,
    MAX_TOOL_DESCRIPTION_BYTES,
    MAX_TOOLS,
)
from broker.wire.feature.features import FEATURES, LIFECYCLE_EVENTS, REQUIRED_FEATURES, Version, is_since
from broker.wire.feature.values import Value, compact_size
from broker.wire.jsonrpc import ABSENT, Absent
from broker.wire.octet.catalogue import tool_faults
from broker.wire.octet.manifest_toml import IDENTIFIER
from broker.wire.octet.models import ToolDefinition
from broker.wire.octet.schema import Integer, Items, Nested, Text, decode, over, refuse, wire
from broker.wire.quoting import quote, utf8_length

_DESCRIBED_TOOLS: Final = ("operation_descriptors_v1", "tool_prompt_metadata_v1")
_TOOL_MEMBERS: Final = frozenset(("name", "description", "parameters", "output_schema"))


@frozen(kw_only=True)
class Offer:
    """What the host offers: its version, the optional features in the order of the table, and its concurrency."""

    version: Version
    optional_features: tuple[str, ...] = ()
    max_concurrent_requests: int = MAX_CONCURRENT_REQUESTS

    def protocol_json(self) -> dict[str, Any]:
        """The ``protocol`` member of ``initialize``; 0.1 must not be sent one."""
        return {
            "version": self.version,
            "required_features": list(REQUIRED_FEATURES),
            "optional_features": list(self.optional_features),
            "limits": {"max_concurrent_requests": self.max_concurrent_requests},
        }


@frozen(kw_only=True)
class Declared:
    """What the manifest promises of the process: the names of its tools, commands, renderers and shortcuts."""

    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    tool_renderers: tuple[str, ...] = ()
    shortcuts: tuple[str, ...] = ()


@frozen(kw_only=True)
class Command:
    """One command. ``extra`` holds whatever else the extension said of it."""

    name: str
    description: str = ""
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Agreement:
    """What both sides may use from the answer to ``initialize`` on."""

    version: Version
    features: frozenset[str]
    max_concurrent_requests: int
    tools: tuple[ToolDefinition, ...]
    commands: tuple[Command, ...]
    tool_renderers: tuple[str, ...]
    shortcuts: tuple[Any, ...] = ()
    lifecycle_events: tuple[str, ...] = ()
    tool_extras: dict[str, dict[str, Any]] = field(factory=dict)


# -- the answer's shape ------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Limits:
    max_concurrent_requests: int = field(metadata=wire(Integer()))


@frozen(kw_only=True)
class _Protocol:
    version: str = field(metadata=wire(Text()))
    features: tuple[str, ...] = field(metadata=wire(Items(Text())))
    limits: _Limits = field(metadata=wire(Nested(_Limits)))
    lifecycle_events: tuple[str, ...] | Absent = field(default=ABSENT, metadata=wire(Items(Text())))


@frozen(kw_only=True)
class _Shortcut:
    name: str = field(metadata=wire(Text("MAX_MANIFEST_IDENTIFIER_BYTES", empty=False)))
    key: str = field(metadata=wire(Text("MAX_SHORTCUT_KEY_BYTES", empty=False)))
    description: str = field(metadata=wire(Text("MAX_SHORTCUT_DESCRIPTION_BYTES")))


@frozen(kw_only=True)
class _Answer:
    api_version: str = field(metadata=wire(Text()))
    tools: tuple[Any, ...] = field(metadata=wire(Items(Value(only_object=True))))
    commands: tuple[Any, ...] = field(metadata=wire(Items(Value())))
    tool_renderers: tuple[str, ...] | Absent = field(default=ABSENT, metadata=wire(Items(Text())))
    shortcuts: tuple[_Shortcut, ...] | Absent = field(default=ABSENT, metadata=wire(Items(Nested(_Shortcut))))
    protocol: _Protocol | Absent = field(default=ABSENT, metadata=wire(Nested(_Protocol)))


# -- judging it --------------------------------------------------------------------------------------------------------


def judge_answer(result: Any, *, offer: Offer, declared: Declared) -> Agreement:
    """The agreement in the result of ``initialize``, or :class:`~broker.errors.NegotiationError`.

    The error's ``name`` is ``version_mismatch``, ``capability_mismatch``, ``invalid_params`` or ``resource_exhausted``;
    ``faults`` are those of the first step that found any.
    """
    answer = decode(_Answer, result, what="result of initialize", error=NegotiationError)
    _refuse(_version_faults(answer, offer))
    features, concurrency = _judge_protocol(answer, offer)
    _refuse(_count_faults(answer))
    tools, extras, faults = read_tools(answer.tools, features)
    _refuse(faults)
    commands, faults = _read_commands(answer.commands)
    _refuse(faults)
    names = tuple(tool.name for tool in tools)
    _refuse(_name_faults("tools", names, declared.tools, exact="dynamic_tools" not in features))
    names = tuple(command.name for command in commands)
    _refuse(_name_faults("commands", names, declared.commands, exact="runtime_commands" not in features))
    renderers = declared.tool_renderers
    if not isinstance(answer.tool_renderers, Absent):
        renderers = answer.tool_renderers
        for index, name in enumerate(renderers):
            _refuse(_word_faults(f"tool_renderers[{index}]", name))
        exact = "dynamic_tool_renderers" not in features
        _refuse(_name_faults("tool_renderers", renderers, declared.tool_renderers, exact=exact))
    shortcuts: tuple[_Shortcut, ...] = () if isinstance(answer.shortcuts, Absent) else answer.shortcuts
    if not isinstance(answer.shortcuts, Absent):
        keys = tuple(shortcut.name for shortcut in shortcuts)
        _refuse(_name_faults("shortcuts", keys, declared.shortcuts, exact=True))
    return Agreement(
        version=offer.version,
        features=features,
        max_concurrent_requests=concurrency,
        tools=tools,
        commands=commands,
        tool_renderers=renderers,
        shortcuts=shortcuts,
        lifecycle_events=_lifecycle(answer, features),
        tool_extras=extras,
    )


def read_tools(
    values: Sequence[Any], features: frozenset[str]
) -> tuple[tuple[ToolDefinition, ...], dict[str, dict[str, Any]], list[Fault]]:
    """The definitions in ``values``, what else they say, and every fault of them.

    Members beyond the four known ones are allowed only with a feature that adds some, and kept by the tool's name.
    """
    described = any(name in features for name in _DESCRIBED_TOOLS)
    tools: list[ToolDefinition] = []
    extras: dict[str, dict[str, Any]] = {}
    faults: list[Fault] = []
    for index, value in enumerate(values):
        extra: dict[str, Any] = {}
        if described and type(value) is dict:
            extra = {key: item for key, item in value.items() if key not in _TOOL_MEMBERS}
        known = {key: item for key, item in value.items() if key in _TOOL_MEMBERS} if extra else value
        try:
            tool = decode(ToolDefinition, known, error=NegotiationError)
        except NegotiationError as error:
            faults += [Fault(f"tools[{index}].{fault.path}", fault.problem, fault.name) for fault in error.faults]
            continue
        if extra:
            extras[tool.name] = extra
        tools.append(tool)
    return tuple(tools), extras, faults or tool_faults(tools, measure=compact_size)


def _refuse(faults: list[Fault]) -> None:
    if faults:
        refuse(faults, what="result of initialize", error=NegotiationError)


def _mismatch(path: str, problem: str) -> Fault:
    return Fault(path, problem, "capability_mismatch")


def _version_faults(answer: _Answer, offer: Offer) -> list[Fault]:
    if answer.api_version != offer.version:
        problem = f"must be {quote(offer.version)}, not {quote(answer.api_version)}"
        return [Fault("api_version", problem, "version_mismatch")]
    if offer.version == "0.1":
        present = (("protocol", answer.protocol), ("shortcuts", answer.shortcuts))
        return [Fault(path, "is not part of API 0.1") for path, value in present if value is not ABSENT]
    if isinstance(answer.protocol, Absent):
        return [Fault("protocol", "is missing")]
    if answer.protocol.version != offer.version:
        problem = f"must be {quote(offer.version)}, not {quote(answer.protocol.version)}"
        return [Fault("protocol.version", problem, "version_mismatch")]
    return []


def _judge_protocol(answer: _Answer, offer: Offer) -> tuple[frozenset[str], int]:
    if isinstance(answer.protocol, Absent):
        return frozenset(), 1
    selected = answer.protocol.features
    for faults in _feature_steps(selected, offer):
        _refuse(faults)
    concurrency = answer.protocol.limits.max_concurrent_requests
    if concurrency < 1:
        _refuse([Fault("protocol.limits.max_concurrent_requests", "must be at least 1")])
    events = answer.protocol.lifecycle_events
    if not isinstance(events, Absent):
        _refuse(list(_event_faults(events, selected)))
    return frozenset(selected), min(concurrency, offer.max_concurrent_requests)


def _feature_steps(selected: tuple[str, ...], offer: Offer) -> Iterator[list[Fault]]:
    """The faults of each step in turn; a step may rely on all before it having found none."""
    offered = frozenset(REQUIRED_FEATURES) | frozenset(offer.optional_features)
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, name in enumerate(selected):
        path = f"protocol.features[{index}]"
        if name in seen:
            faults.append(_mismatch(path, f"{quote(name)} is selected twice"))
        elif name not in FEATURES:
            faults.append(_mismatch(path, f"{quote(name)} is unknown"))
        elif not is_since(offer.version, FEATURES[name].since):
            faults.append(_mismatch(path, f"{quote(name)} is not part of API {offer.version}"))
        elif name not in offered:
            faults.append(_mismatch(path, f"{quote(name)} was not offered"))
        seen.add(name)
    yield faults
    yield [
        _mismatch("protocol.features", f"{quote(name)} is required") for name in REQUIRED_FEATURES if name not in seen
    ]
    yield [
        _mismatch(f"protocol.features[{index}]", f"{quote(name)} needs {quote(need)}")
        for index, name in enumerate(selected)
        if (need := FEATURES[name].needs) is not None and need not in seen
    ]


def _event_faults(events: tuple[str, ...], features: tuple[str, ...]) -> Iterator[Fault]:
    if events and "lifecycle_events" not in features:
        yield _mismatch("protocol.lifecycle_events", "needs the feature 'lifecycle_events'")
    for index, name in enumerate(events):
        if name not in LIFECYCLE_EVENTS:
            yield _mismatch(f"protocol.lifecycle_events[{index}]", f"{quote(name)} is unknown")
        elif name in events[:index]:
            yield _mismatch(f"protocol.lifecycle_events[{index}]", f"{quote(name)} stands twice")


def _lifecycle(answer: _Answer, features: frozenset[str]) -> tuple[str, ...]:
    if isinstance(answer.protocol, Absent) or "lifecycle_events" not in features:
        return ()
    asked = answer.protocol.lifecycle_events
    return LIFECYCLE_EVENTS if isinstance(asked, Absent) or not asked else asked


def _count_faults(answer: _Answer) -> list[Fault]:
    return [
        Fault(path, "has too many items", "resource_exhausted", limit, observed, maximum)
        for path, limit, observed, maximum in (
            ("tools", "MAX_TOOLS", len(answer.tools), MAX_TOOLS),
            ("commands", "MAX_COMMANDS", len(answer.commands), MAX_COMMANDS),
        )
        if observed > maximum
    ]


def _read_commands(values: Iterable[Any]) -> tuple[tuple[Command, ...], list[Fault]]:
    """Commands as the extension lists them: by name alone, or as an object with a name."""
    commands: list[Command] = []
    faults: list[Fault] = []
    for index, value in enumerate(values):
        entry = {"name": value} if type(value) is str else value
        path = f"commands[{index}]"
        if type(entry) is not dict:
            faults.append(Fault(path, "must be a name or an object with a name"))
            continue
        name, description = entry.get("name"), entry.get("description", "")
        if type(name) is not str or type(description) is not str:
            faults.append(Fault(f"{path}.name" if type(name) is not str else f"{path}.description", "must be a string"))
            continue
        faults += _word_faults(f"{path}.name", name)
        if (size := utf8_length(description)) > MAX_TOOL_DESCRIPTION_BYTES:
            faults.append(over(f"{path}.description", "is too long", "MAX_TOOL_DESCRIPTION_BYTES", size))
        extra = {key: item for key, item in entry.items() if key not in ("name", "description")}
        commands.append(Command(name=name, description=description, extra=extra))
    return tuple(commands), faults


def _word_faults(path: str, name: str) -> list[Fault]:
    """The faults of a name an extension chose while it runs; people are shown it."""
    size = utf8_length(name)
    if size > MAX_MANIFEST_IDENTIFIER_BYTES:
        return [over(path, "is too long", "MAX_MANIFEST_IDENTIFIER_BYTES", size)]
    return [] if IDENTIFIER.fullmatch(name) else [Fault(path, f"{quote(name)} is not an identifier")]


def _name_faults(path: str, names: tuple[str, ...], declared: tuple[str, ...], *, exact: bool) -> list[Fault]:
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, name in enumerate(names):
        at = f"{path}[{index}]"
        if name in seen:
            faults.append(_mismatch(at, f"{quote(name)} appears twice"))
        elif exact and name not in declared:
            faults.append(_mismatch(at, f"{quote(name)} is not in the manifest"))
        seen.add(name)
    if exact:
        faults += [
            _mismatch(path, f"{quote(name)} of the manifest is missing") for name in declared if name not in seen
        ]
    return faults
