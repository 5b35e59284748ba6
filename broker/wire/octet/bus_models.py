"""The records of the octet 0.3 event bus methods (octet reference, models ``Bus*``).

Parameters an extension sends are checked for shape only (types, presence, unknown members, null) and for list lengths:
names, values, bindings and payloads are the bus's to judge, which alone knows the topic and the peer.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from attrs import field, frozen

from broker.limits import MAX_PORTABLE_INTEGER
from broker.wire.jsonrpc import ABSENT, Absent
from broker.wire.octet.schema import Boolean, Integer, Items, Json, Nested, Text, Union, wire

_SIGNED: Final = Integer(minimum=-MAX_PORTABLE_INTEGER)


@frozen(kw_only=True)
class BusFieldSpec:
    """One scalar field of a topic. ``max_bytes`` and ``values`` are always sent, whatever the kind."""

    name: str = field(metadata=wire(Text()))
    kind: str = field(metadata=wire(Text(choices=("string", "integer", "boolean", "enum"))))
    required: bool = field(metadata=wire(Boolean()))
    max_bytes: int = field(metadata=wire(Integer()))
    values: tuple[str, ...] = field(metadata=wire(Items(Text(), "MAX_BUS_ENUM_VALUES")))
    minimum: int | Absent = field(default=ABSENT, metadata=wire(_SIGNED))
    maximum: int | Absent = field(default=ABSENT, metadata=wire(_SIGNED))


@frozen(kw_only=True)
class BusDeclareParams:
    """The parameters of ``bus/declare``."""

    binding_id: str = field(metadata=wire(Text()))
    topic: str = field(metadata=wire(Text()))
    fields: tuple[BusFieldSpec, ...] = field(metadata=wire(Items(Nested(BusFieldSpec), "MAX_BUS_FIELDS")))


@frozen(kw_only=True)
class BusTopicParams:
    """The parameters of ``bus/subscribe`` and ``bus/unsubscribe``."""

    binding_id: str = field(metadata=wire(Text()))
    topic: str = field(metadata=wire(Text()))


@frozen(kw_only=True)
class BusPublishParams:
    """The parameters of ``bus/publish``. Publisher, generation, sequence and time are the host's and have no member."""

    binding_id: str = field(metadata=wire(Text()))
    topic: str = field(metadata=wire(Text()))
    payload: Any = field(metadata=wire(Json()))


@frozen(kw_only=True)
class BusAck:
    """The result of ``bus/declare`` and ``bus/unsubscribe``."""

    binding_id: str = field(metadata=wire(Text()))


@frozen(kw_only=True)
class BusPublishResult:
    """The result of ``bus/publish``: admitted to every subscriber, under this sequence, at this Unix millisecond."""

    binding_id: str = field(metadata=wire(Text()))
    sequence: int = field(metadata=wire(Integer()))
    published_at_ms: int = field(metadata=wire(Integer()))


@frozen(kw_only=True)
class BusSubscribePending:
    """``bus/subscribe`` result ``pending``: interest is recorded, no event will come."""

    binding_id: str = field(metadata=wire(Text()))
    topic_revision: int = field(metadata=wire(Integer()))


@frozen(kw_only=True)
class BusSubscribeActive:
    """``bus/subscribe`` result ``active``: events of this publisher's generation follow."""

    binding_id: str = field(metadata=wire(Text()))
    topic_revision: int = field(metadata=wire(Integer()))
    publisher_instance_id: str = field(metadata=wire(Text()))
    process_generation: int = field(metadata=wire(Integer()))


BusSubscribeResult: TypeAlias = BusSubscribePending | BusSubscribeActive

BUS_SUBSCRIBE_RESULT: Final = Union("state", {"pending": BusSubscribePending, "active": BusSubscribeActive})


@frozen(kw_only=True)
class BusEventParams:
    """The parameters of the notification ``bus/event``."""

    binding_id: str = field(metadata=wire(Text()))
    topic: str = field(metadata=wire(Text()))
    publisher: str = field(metadata=wire(Text()))
    publisher_instance_id: str = field(metadata=wire(Text()))
    process_generation: int = field(metadata=wire(Integer()))
    sequence: int = field(metadata=wire(Integer()))
    published_at_ms: int = field(metadata=wire(Integer()))
    payload: Any = field(metadata=wire(Json()))


@frozen(kw_only=True)
class BusBinding:
    """``bus/lifecycle`` kind ``binding``: the binding every bus request must carry from now on."""

    binding_id: str = field(metadata=wire(Text()))
    binding_revision: int = field(metadata=wire(Integer()))


@frozen(kw_only=True)
class BusTopicAvailable:
    """``bus/lifecycle`` kind ``topic_available``: a topic of interest has a publisher; subscribe again."""

    binding_id: str = field(metadata=wire(Text()))
    topic: str = field(metadata=wire(Text()))
    topic_revision: int = field(metadata=wire(Integer()))
    publisher_instance_id: str = field(metadata=wire(Text()))
    process_generation: int = field(metadata=wire(Integer()))


@frozen(kw_only=True)
class BusTopicUnavailable:
    """``bus/lifecycle`` kind ``topic_unavailable``: a topic of interest has lost its publisher."""

    binding_id: str = field(metadata=wire(Text()))
    topic: str = field(metadata=wire(Text()))
    topic_revision: int = field(metadata=wire(Integer()))
    publisher_instance_id: str = field(metadata=wire(Text()))
    process_generation: int = field(metadata=wire(Integer()))


BusLifecycleParams: TypeAlias = BusBinding | BusTopicAvailable | BusTopicUnavailable

BUS_LIFECYCLE_PARAMS: Final = Union(
    "kind",
    {"binding": BusBinding, "topic_available": BusTopicAvailable, "topic_unavailable": BusTopicUnavailable},
)
