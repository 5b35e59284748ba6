"""The records of provider streams (octet 0.3): the request, its acceptance, its events, and what each kind carries.

Source: octet reference, models ``ProviderStream*``; octet notes, section 4.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attrs import field, frozen

from broker.errors import ResultError
from broker.wire.jsonrpc import ABSENT, Absent
from broker.wire.octet.provider_models import LEASE, PROVIDER_ID
from broker.wire.octet.schema import Boolean, Integer, Json, Text, decode, wire

STREAM_ID: Final = Text("MAX_PROVIDER_STREAM_ID_BYTES", empty=False)
_REASON: Final = Text("MAX_REASON_BYTES")
_GIVEN: Final = Text(empty=False)
_COUNT: Final = Integer()


@frozen(kw_only=True)
class ProviderStreamRequest:
    """The parameters of ``provider/stream``. ``request`` is any JSON but null, in the words of the model's protocol."""

    stream_id: str = field(metadata=wire(STREAM_ID))
    provider_id: str = field(metadata=wire(PROVIDER_ID))
    model_id: str = field(metadata=wire(PROVIDER_ID))
    request: Any = field(metadata=wire(Json()))
    authorization_lease: str | Absent = field(default=ABSENT, repr=False, metadata=wire(LEASE))


@frozen(kw_only=True)
class ProviderStreamAccepted:
    """The result of ``provider/stream``: whether events follow. It never allows the request to be sent again."""

    stream_id: str = field(metadata=wire(STREAM_ID))
    accepted: bool = field(metadata=wire(Boolean()))
    reason: str | Absent = field(default=ABSENT, metadata=wire(_REASON))


@frozen(kw_only=True)
class StreamStarted:
    """The model has begun; ``response_id`` is what its provider calls the answer."""

    response_id: str | Absent = field(default=ABSENT, metadata=wire(Text()))


@frozen(kw_only=True)
class TextStart:
    """The part ``index`` of the answer is text and begins."""

    index: int = field(metadata=wire(_COUNT))


@frozen(kw_only=True)
class TextDelta:
    """More text of the part ``index``."""

    index: int = field(metadata=wire(_COUNT))
    delta: str = field(metadata=wire(Text()))


@frozen(kw_only=True)
class TextEnd:
    """The part ``index`` is complete."""

    index: int = field(metadata=wire(_COUNT))


@frozen(kw_only=True)
class ReasoningStart:
    """The part ``index`` of the answer is reasoning and begins."""

    index: int = field(metadata=wire(_COUNT))


@frozen(kw_only=True)
class ReasoningDelta:
    """More reasoning of the part ``index``."""

    index: int = field(metadata=wire(_COUNT))
    delta: str = field(metadata=wire(Text()))


@frozen(kw_only=True)
class ReasoningEnd:
    """The part ``index`` is complete."""

    index: int = field(metadata=wire(_COUNT))


@frozen(kw_only=True)
class ToolCallStart:
    """The part ``index`` of the answer is a call of the tool ``name``, under the model's own ``id``."""

    index: int = field(metadata=wire(_COUNT))
    id: str = field(metadata=wire(_GIVEN))
    name: str = field(metadata=wire(_GIVEN))


@frozen(kw_only=True)
class ToolCallArgsDelta:
    """More of the arguments' JSON text of the part ``index``."""

    index: int = field(metadata=wire(_COUNT))
    delta: str = field(metadata=wire(Text()))


@frozen(kw_only=True)
class ToolCallEnd:
    """The part ``index`` is complete."""

    index: int = field(metadata=wire(_COUNT))


@frozen(kw_only=True)
class Usage:
    """Counts of tokens so far; a count the provider does not have is absent."""

    input_tokens: int | Absent = field(default=ABSENT, metadata=wire(_COUNT))
    cache_read_tokens: int | Absent = field(default=ABSENT, metadata=wire(_COUNT))
    cache_write_tokens: int | Absent = field(default=ABSENT, metadata=wire(_COUNT))
    cache_write_1h_tokens: int | Absent = field(default=ABSENT, metadata=wire(_COUNT))
    output_tokens: int | Absent = field(default=ABSENT, metadata=wire(_COUNT))
    reasoning_tokens: int | Absent = field(default=ABSENT, metadata=wire(_COUNT))
    total_tokens: int | Absent = field(default=ABSENT, metadata=wire(_COUNT))


@frozen(kw_only=True)
class Finished:
    """The answer is complete; ``stop_reason`` is the provider's word for why."""

    stop_reason: str = field(metadata=wire(_GIVEN))


StreamPayload: TypeAlias = (
    StreamStarted
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolCallStart
    | ToolCallArgsDelta
    | ToolCallEnd
    | Usage
    | Finished
)
"""What a reader of a stream gets."""

PAYLOADS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "started": StreamStarted,
        "text_start": TextStart,
        "text_delta": TextDelta,
        "text_end": TextEnd,
        "reasoning_start": ReasoningStart,
        "reasoning_delta": ReasoningDelta,
        "reasoning_end": ReasoningEnd,
        "tool_call_start": ToolCallStart,
        "tool_call_args_delta": ToolCallArgsDelta,
        "tool_call_end": ToolCallEnd,
        "usage": Usage,
        "finished": Finished,
    }
)
"""The payload of each kind that a reader gets. Those of ``error`` and ``heartbeat`` are not looked at."""

KINDS: Final = (*PAYLOADS, "error", "heartbeat")
TERMINAL_KINDS: Final = frozenset(("finished", "error"))


@frozen(kw_only=True)
class ProviderStreamEvent:
    """The parameters of the notification ``provider/event``; ``sequence`` counts from 0 without a gap."""

    stream_id: str = field(metadata=wire(STREAM_ID))
    sequence: int = field(metadata=wire(Integer()))
    kind: str = field(metadata=wire(Text(choices=KINDS)))
    payload: Any = field(metadata=wire(Json(max_bytes="MAX_PROVIDER_STREAM_EVENT_BYTES")))


@frozen(kw_only=True)
class ProviderStreamCancelParams:
    """The parameters of the notification ``provider/cancel``."""

    stream_id: str = field(metadata=wire(STREAM_ID))
    reason: str | Absent = field(default=ABSENT, metadata=wire(_REASON))


def decode_stream_accepted(value: Any) -> ProviderStreamAccepted:
    """A ``provider/stream`` result, or :class:`~broker.errors.ResultError` with its faults."""
    return decode(ProviderStreamAccepted, value, what="result of provider/stream", error=ResultError)
