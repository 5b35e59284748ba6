"""What an extension answers on the feature-negotiated wire, and the decoders of those answers.

A bad result fails the call it answers with :class:`~broker.errors.ResultError`; the stream lives. Source: octet notes,
section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from attrs import field, frozen

from broker.errors import Fault, ResultError
from broker.limits import MAX_MENU_BYTES, MAX_MENU_ITEMS, MAX_MENU_LEVELS
from broker.wire.feature.features import HOOK_FEATURES
from broker.wire.feature.models import LABEL, SHOWN_TEXT, ContextItem, ExtensionNotification, StatusItem
from broker.wire.feature.values import Value, compact_size
from broker.wire.jsonrpc import ABSENT, Absent
from broker.wire.octet.models import TextPart, ToolCallResult
from broker.wire.octet.schema import Boolean, Items, Nested, Text, Union, check, decode, over, refuse, wire, wrong_type


def _or_empty(value: Any) -> Any:
    return () if value is ABSENT else value


def _or_empty_object(value: Any) -> Any:
    return {} if value is ABSENT else value


_CONTEXT: Final = Items(Nested(ContextItem), "MAX_SHOWN_ITEMS")
_NOTIFICATIONS: Final = Items(Nested(ExtensionNotification), "MAX_SHOWN_ITEMS")

# -- tool/call ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ImagePart:
    """A content part of type ``image``; its bytes are an artifact this generation published."""

    artifact_id: str = field(metadata=wire(Text("MAX_LABEL_BYTES", empty=False)))
    mime_type: str = field(metadata=wire(Text("MAX_LABEL_BYTES", empty=False)))
    alt: str = field(metadata=wire(SHOWN_TEXT))


@frozen(kw_only=True)
class AudioPart:
    """A content part of type ``audio``; its bytes are an artifact this generation published."""

    artifact_id: str = field(metadata=wire(Text("MAX_LABEL_BYTES", empty=False)))
    mime_type: str = field(metadata=wire(Text("MAX_LABEL_BYTES", empty=False)))
    transcript: str = field(metadata=wire(SHOWN_TEXT))


FeaturePart: TypeAlias = TextPart | ImagePart | AudioPart
_PART: Final = Union("type", {"text": TextPart, "image": ImagePart, "audio": AudioPart})


@frozen(kw_only=True)
class FeatureToolResult:
    """A tool's own result on 0.2 and 0.4. ``structured_content`` and ``metadata`` keep absent and null apart."""

    content: tuple[FeaturePart, ...] = field(metadata=wire(Items(_PART, "MAX_CONTENT_PARTS")))
    is_error: bool = field(metadata=wire(Boolean()))
    metadata: Any = field(default=ABSENT, metadata=wire(Value("MAX_RESULT_METADATA_BYTES"), nullable=True))
    structured_content: Any = field(default=ABSENT, metadata=wire(Value("MAX_STRUCTURED_CONTENT_BYTES"), nullable=True))


@frozen(kw_only=True)
class _TextResult:
    content: str = field(metadata=wire(Text()))
    is_error: bool = field(metadata=wire(Boolean()))


ToolResult: TypeAlias = ToolCallResult | FeatureToolResult


def decode_text_result(value: Any) -> ToolCallResult:
    """A 0.1 ``tool/call`` result, which is one text, as the result every host understands."""
    result = decode(_TextResult, value, what="result of tool/call", error=ResultError)
    return ToolCallResult(content=(TextPart(text=result.content),), is_error=result.is_error, metadata=None)


def decode_parts_result(is_published: Callable[[str], bool]) -> Callable[[Any], FeatureToolResult]:
    """The decoder of 0.2 and 0.4 ``tool/call`` results; media parts must name a published artifact."""

    def decoded(value: Any) -> FeatureToolResult:
        result = decode(FeatureToolResult, value, what="result of tool/call", error=ResultError)
        faults = [
            Fault(f"content[{index}].artifact_id", "is not an artifact this process published")
            for index, part in enumerate(result.content)
            if not isinstance(part, TextPart) and not is_published(part.artifact_id)
        ]
        if faults:
            refuse(faults, what="result of tool/call", error=ResultError)
        return result

    return decoded


# -- commands, hooks, collections --------------------------------------------------------------------------------------


@frozen(kw_only=True)
class CommandResult:
    """The result of ``command/execute``."""

    text: str = field(metadata=wire(SHOWN_TEXT))
    notifications: tuple[ExtensionNotification, ...] = field(
        default=ABSENT, converter=_or_empty, metadata=wire(_NOTIFICATIONS)
    )
    context: tuple[ContextItem, ...] = field(default=ABSENT, converter=_or_empty, metadata=wire(_CONTEXT))


@frozen(kw_only=True)
class HookDisposition:
    """What a hook says: go on, or do not, and why."""

    action: str = field(metadata=wire(Text(choices=("continue", "deny"))))
    reason: str | Absent = field(default=ABSENT, metadata=wire(Text("MAX_REASON_BYTES")))


@frozen(kw_only=True)
class HookResult:
    """The result of ``hook/run``.

    ``extra`` holds further members of the hooks whose result the reference leaves open (those of
    :data:`~broker.wire.feature.features.HOOK_FEATURES`); for any other hook they are refused.
    """

    disposition: HookDisposition = field(metadata=wire(Nested(HookDisposition)))
    context: tuple[ContextItem, ...] = field(default=ABSENT, converter=_or_empty, metadata=wire(_CONTEXT))
    notifications: tuple[ExtensionNotification, ...] = field(
        default=ABSENT, converter=_or_empty, metadata=wire(_NOTIFICATIONS)
    )
    extra: dict[str, Any] = field(
        default=ABSENT,
        converter=_or_empty_object,
        metadata=wire(Value("MAX_OPERATION_BYTES", only_object=True)),
    )

    @property
    def denied(self) -> bool:
        """Whether it asks for the operation not to go on. Obeying is the host's decision."""
        return self.disposition.action == "deny"


_HOOK_MEMBERS: Final = frozenset(("disposition", "context", "notifications"))


def decode_command_result(value: Any) -> CommandResult:
    """A ``command/execute`` result."""
    return decode(CommandResult, value, what="result of command/execute", error=ResultError)


def decode_hook_result(hook: str) -> Callable[[Any], HookResult]:
    """The decoder of ``hook/run`` results of ``hook``."""

    def decoded(value: Any) -> HookResult:
        if type(value) is dict:
            if hook in HOOK_FEATURES:
                extra = {key: item for key, item in value.items() if key not in _HOOK_MEMBERS}
                value = {**{key: item for key, item in value.items() if key in _HOOK_MEMBERS}, "extra": extra}
            elif "extra" in value:
                refuse([Fault("extra", "is not a known member")], what="result of hook/run", error=ResultError)
        return decode(HookResult, value, what=f"result of hook/run ({hook})", error=ResultError)

    return decoded


def decode_context(value: Any) -> tuple[ContextItem, ...]:
    """A ``context/collect`` result."""
    faults = check(_CONTEXT, value)
    if faults:
        refuse(faults, what="result of context/collect", error=ResultError)
    items: tuple[ContextItem, ...] = _CONTEXT.decode(value)
    return items


def decode_status(surface: str) -> Callable[[Any], StatusItem | None]:
    """The decoder of ``status/collect`` results for ``surface``; ``null`` means that nothing is shown there."""

    def decoded(value: Any) -> StatusItem | None:
        if value is None:
            return None
        item = decode(StatusItem, value, what="result of status/collect", error=ResultError)
        if item.surface != surface:
            fault = Fault("surface", f"must be {surface}, not {item.surface}")
            refuse([fault], what="result of status/collect", error=ResultError)
        return item

    return decoded


# -- menu, rendering, shutdown -----------------------------------------------------------------------------------------


@frozen
class Menu:
    """A checked menu tree: an object or array as the extension sent it, within its bounds."""

    tree: Any


def decode_menu(value: Any) -> Menu:
    """A ``menu/collect`` result. An item is an object in an array; each array inside an item is one level deeper.

    It counts wherever it stands: which members a menu has is open, and a wrapper is no way around a bound.
    """
    faults: list[Fault] = []
    if type(value) is not dict and type(value) is not list:
        faults.append(wrong_type("", "an object or an array", value))
    elif (size := compact_size(value)) > MAX_MENU_BYTES:
        faults.append(over("", "is too large", "MAX_MENU_BYTES", size))
    else:
        levels = list(_menu_levels(value))
        if sum(levels) > MAX_MENU_ITEMS:
            faults.append(over("", "has too many items", "MAX_MENU_ITEMS", sum(levels)))
        if len(levels) > MAX_MENU_LEVELS:
            faults.append(over("", "has too many levels", "MAX_MENU_LEVELS", len(levels)))
    if faults:
        refuse(faults, what="result of menu/collect", error=ResultError)
    return Menu(value)


def _menu_levels(tree: Any) -> Iterator[int]:
    """The number of items of each level, from the top."""
    level = [tree]
    while True:
        arrays = [inner for node in level for inner in _arrays(node)]
        items = [item for array in arrays for item in array if type(item) is dict]
        if not items:
            return
        yield len(items)
        level = items


def _arrays(node: Any) -> Iterator[list[Any]]:
    """The arrays in ``node``, whatever they are wrapped in, but for those inside an item."""
    pending = [node]
    while pending:
        value = pending.pop()
        if type(value) is list:
            yield value
            pending.extend(inner for inner in value if type(inner) is list)
        elif type(value) is dict:
            pending.extend(value.values())


@frozen(kw_only=True)
class Segment:
    """A piece of rendered text and how it is styled."""

    text: str = field(metadata=wire(SHOWN_TEXT))
    style_role: str = field(metadata=wire(LABEL))


@frozen(kw_only=True)
class Rendering:
    """The result of ``tool/render``."""

    segments: tuple[Segment, ...] = field(metadata=wire(Items(Nested(Segment), "MAX_SHOWN_ITEMS")))


@frozen(kw_only=True)
class EmptyResult:
    """The result of ``shutdown`` and ``resource/dispose``: ``{}``."""


def decode_rendering(value: Any) -> Rendering:
    """A ``tool/render`` result."""
    return decode(Rendering, value, what="result of tool/render", error=ResultError)


def decode_empty(method: str) -> Callable[[Any], EmptyResult]:
    """The decoder of a result that must be ``{}``."""
    return lambda value: decode(EmptyResult, value, what=f"result of {method}", error=ResultError)
