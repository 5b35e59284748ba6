"""What the extension's side of a connection tells its driver, and the two kinds of request it keeps track of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from attrs import define, field, frozen

from broker.errors import BrokerError
from broker.wire.jsonrpc import RequestId


@define(eq=False)
class HostCall:
    """One request of the host, to be answered once. ``params`` is the decoded JSON, ``model`` its record if it has one.

    ``cancelled`` says that the host has asked for an early answer, ``reason`` why; ``answered`` that the one answer is
    on its way.
    """

    id: RequestId
    method: str
    params: Any
    model: Any = None
    cancelled: bool = False
    reason: str = ""
    answered: bool = False


@define(eq=False)
class OwnRequest:
    """One request of the extension. When it has settled, ``error`` says how it failed, or ``result`` is the answer."""

    method: str
    params: Any
    on_settled: Callable[[OwnRequest], None] = field(repr=False)
    id: int | None = None
    settled: bool = False
    result: Any = None
    error: BrokerError | None = None


@frozen(kw_only=True)
class HostInfo:
    """What ``initialize`` told, and what was agreed on.

    ``selected`` are the capabilities (0.3) or features (0.4) both sides may use, ``flags`` the values of the manifest's
    flags by name, and ``host`` and ``extension`` the host's own members of those names, as sent.
    """

    api_version: str
    octet_version: str
    workspace: str
    extension: Mapping[str, Any]
    host: Mapping[str, Any]
    flags: Mapping[str, Any]
    selected: frozenset[str]
    methods: frozenset[str]
    max_frame_bytes: int
    max_concurrent_requests: int


@frozen
class Initialized:
    """The contract stands; from here on either side may send."""

    info: HostInfo


@frozen
class CallReceived:
    """The host asks for something."""

    call: HostCall


@frozen
class CallCancelled:
    """The host wants ``call`` to end early."""

    call: HostCall


@frozen
class NoticeReceived:
    """A notification of the host that is not about the bus; ``model`` is its record, if it has one."""

    method: str
    params: Any
    model: Any = None


@frozen
class ShutdownReceived:
    """The host asks for the end; ``call`` is answered last."""

    call: HostCall


@frozen(kw_only=True)
class BusEvent:
    """One event of an active subscription. The publisher is who the host says it is."""

    topic: str
    publisher: str
    publisher_instance_id: str
    process_generation: int
    sequence: int
    published_at_ms: int
    payload: dict[str, Any]


@frozen(kw_only=True)
class TopicAvailability:
    """A topic of interest has got a publisher, or lost it."""

    topic: str
    available: bool
    publisher_instance_id: str
    process_generation: int


@frozen
class Declared:
    """The host took the declaration of ``topic`` under the current binding, or refused it with ``error``."""

    topic: str
    error: BrokerError | None = None


@frozen
class Subscribed:
    """The host answered a subscription: ``active``, or pending until somebody declares the topic."""

    topic: str
    active: bool


@frozen
class Log:
    """Something an author or the host's diagnostics should know."""

    text: str


@frozen
class Closed:
    """The connection is over; with ``error`` when it did not end as it should. Nothing follows."""

    error: BrokerError | None = None


ConnectionEvent: TypeAlias = (
    Initialized
    | CallReceived
    | CallCancelled
    | NoticeReceived
    | ShutdownReceived
    | BusEvent
    | TopicAvailability
    | Declared
    | Subscribed
    | Log
    | Closed
)
