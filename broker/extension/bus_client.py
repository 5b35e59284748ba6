"""The extension's part of the bus, sans-IO: bindings, declarations, subscriptions, and which events to believe.

Declared topics and wanted subscriptions are made known again after each new binding, declarations first. A publication
is never repeated. Acknowledgements of an older binding mean nothing, and an event counts only for an active
subscription, from exactly the publisher that its acknowledgement named, in rising order.

Source: octet reference, models ``Bus*``; octet notes, section 4.10.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from attrs import define

from broker.bus import Field
from broker.errors import BrokerError, CapabilityMismatchError, ProtocolError
from broker.extension.events import (
    BusEvent,
    ConnectionEvent,
    Declared,
    Log,
    OwnRequest,
    Subscribed,
    TopicAvailability,
)
from broker.wire.octet.bus_models import (
    BUS_LIFECYCLE_PARAMS,
    BUS_SUBSCRIBE_RESULT,
    BusAck,
    BusBinding,
    BusEventParams,
    BusPublishResult,
    BusSubscribeActive,
    BusTopicAvailable,
    BusTopicUnavailable,
)
from broker.wire.octet.schema import decode, decode_union


class Requester(Protocol):
    """What the client needs of its connection."""

    def request(self, method: str, params: Any, on_settled: Callable[[OwnRequest], None]) -> OwnRequest:
        """Ask the host."""
        ...

    def emit(self, event: ConnectionEvent) -> None:
        """Tell the driver."""
        ...


class TopicState(Enum):
    """How far the declaration of a topic has come under the current binding."""

    UNBOUND = "not declared yet"
    DECLARING = "being declared"
    DECLARED = "declared"
    REFUSED = "refused by the host"


@define(eq=False)
class _OwnTopic:
    fields: tuple[Field, ...]
    state: TopicState = TopicState.UNBOUND
    error: BrokerError | None = None


@define(eq=False)
class _Interest:
    revision: int = 0  # the highest topic revision seen under this binding
    publisher: tuple[str, int] | None = None  # instance and generation, while the subscription is active
    sequence: int = 0


class BusClient:
    """See the module's text. One for each connection that selected ``event_bus``."""

    def __init__(self, connection: Requester, topics: dict[str, tuple[Field, ...]], subscriptions: list[str]) -> None:
        self._connection = connection
        self._topics = {name: _OwnTopic(fields) for name, fields in topics.items()}
        self._wanted = tuple(subscriptions)
        self._interests: dict[str, _Interest] = {}
        self.binding_id: str | None = None
        self._revision = 0

    # -- publishing ----------------------------------------------------------------------------------------------------

    def state(self, topic: str) -> TopicState:
        """How far the declaration of one of our topics has come."""
        return self._topics[topic].state

    def refusal(self, topic: str) -> BrokerError | None:
        """Why the host refused the declaration of ``topic``, if it did."""
        return self._topics[topic].error

    def publish(self, topic: str, payload: dict[str, Any], on_settled: Callable[[OwnRequest], None]) -> OwnRequest:
        """Publish on a declared topic; the result is a :class:`~broker.wire.octet.bus_models.BusPublishResult`."""
        binding = self.binding_id

        def settled(request: OwnRequest) -> None:
            if request.error is None:
                try:
                    request.result = decode(BusPublishResult, request.result, what="result of bus/publish")
                except BrokerError as error:
                    request.error = error
            elif request.error.name == "capability_mismatch" and binding != self.binding_id:
                request.error = CapabilityMismatchError(
                    f"{topic}: the session got a new binding while this event was on its way; it was not published",
                    topic=topic,
                    method="bus/publish",
                )
            if request.error is not None:
                request.error.topic = topic
            on_settled(request)

        params = {"binding_id": binding, "topic": topic, "payload": payload}
        return self._connection.request("bus/publish", params, settled)

    # -- what the host tells -------------------------------------------------------------------------------------------

    def on_lifecycle(self, params: Any) -> None:
        """``bus/lifecycle``. Raises :class:`~broker.errors.ProtocolError` for a history that cannot be."""
        notice = decode_union(BUS_LIFECYCLE_PARAMS, params, what="params of bus/lifecycle", error=ProtocolError)
        if isinstance(notice, BusBinding):
            self._on_binding(notice)
        elif notice.binding_id == self.binding_id and notice.topic in self._interests:
            self._on_availability(notice)

    def on_event(self, params: Any) -> None:
        """``bus/event``: emitted when it is to be believed, else noted and dropped."""
        event = decode(BusEventParams, params, what="params of bus/event", error=ProtocolError)
        interest = self._interests.get(event.topic)
        if event.binding_id != self.binding_id or interest is None:
            return  # of an older binding, or on its way when the subscription ended
        if (event.publisher_instance_id, event.process_generation) != interest.publisher:
            self._log(f"dropped an event on {event.topic}: not from the publisher of the active subscription")
        elif event.publisher != event.topic.split(".")[1]:
            self._log(f"dropped an event on {event.topic}: {event.publisher!a:.80} is not its owner")
        elif event.sequence <= interest.sequence:
            self._log(f"dropped an event on {event.topic}: sequence {event.sequence} after {interest.sequence}")
        elif type(event.payload) is not dict:
            self._log(f"dropped an event on {event.topic}: its payload is no object")
        else:
            interest.sequence = event.sequence
            self._connection.emit(
                BusEvent(
                    topic=event.topic,
                    publisher=event.publisher,
                    publisher_instance_id=event.publisher_instance_id,
                    process_generation=event.process_generation,
                    sequence=event.sequence,
                    published_at_ms=event.published_at_ms,
                    payload=event.payload,
                )
            )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _on_binding(self, notice: BusBinding) -> None:
        if notice.binding_revision < self._revision:
            return
        same = notice.binding_revision == self._revision
        if same and notice.binding_id == self.binding_id:
            return
        if same or notice.binding_id == self.binding_id or not notice.binding_id or notice.binding_revision < 1:
            raise ProtocolError(
                f"binding {notice.binding_id!a:.80} with revision {notice.binding_revision} contradicts "
                f"{self.binding_id!a:.80} with revision {self._revision}",
                method="bus/lifecycle",
            )
        self.binding_id, self._revision = notice.binding_id, notice.binding_revision
        self._interests.clear()
        # All are asked at once: the host takes requests in order, so that topics of ours we subscribe to are there.
        for topic, own in self._topics.items():
            own.state, own.error = TopicState.DECLARING, None
            self._declare(topic, own)
        for topic in self._wanted:
            self._interests[topic] = _Interest()
            self._subscribe(topic)

    def _declare(self, topic: str, own: _OwnTopic) -> None:
        binding = self.binding_id

        def settled(request: OwnRequest) -> None:
            if binding != self.binding_id:
                return
            error = request.error or _ack_error(request, binding)
            own.state = TopicState.DECLARED if error is None else TopicState.REFUSED
            own.error = error
            if error is not None:
                self._log(f"{topic} is not declared: {error}")
            self._connection.emit(Declared(topic, error))

        params = {"binding_id": binding, "topic": topic, "fields": [_field_json(item) for item in own.fields]}
        self._ask("bus/declare", params, settled)

    def _subscribe(self, topic: str) -> None:
        binding, interest = self.binding_id, self._interests[topic]

        def settled(request: OwnRequest) -> None:
            if self._interests.get(topic) is not interest:
                return
            if request.error is not None:
                self._log(f"not subscribed to {topic}: {request.error}")
                return
            try:
                state = decode_union(BUS_SUBSCRIBE_RESULT, request.result, what="result of bus/subscribe")
            except BrokerError as error:
                self._log(f"not subscribed to {topic}: {error}")
                return
            if state.binding_id != binding or state.topic_revision < interest.revision:
                return  # stale: a later notice has said more, and another subscription is on its way
            interest.revision = state.topic_revision
            active = isinstance(state, BusSubscribeActive)
            if isinstance(state, BusSubscribeActive):
                publisher = (state.publisher_instance_id, state.process_generation)
                interest.sequence = interest.sequence if publisher == interest.publisher else 0
                interest.publisher = publisher
            self._connection.emit(Subscribed(topic, active))

        self._ask("bus/subscribe", {"binding_id": binding, "topic": topic}, settled)

    def _on_availability(self, notice: BusTopicAvailable | BusTopicUnavailable) -> None:
        interest = self._interests[notice.topic]
        if notice.topic_revision <= interest.revision:
            return
        interest.revision = notice.topic_revision
        interest.publisher, interest.sequence = None, 0
        available = isinstance(notice, BusTopicAvailable)
        if available:
            self._subscribe(notice.topic)
        self._connection.emit(
            TopicAvailability(
                topic=notice.topic,
                available=available,
                publisher_instance_id=notice.publisher_instance_id,
                process_generation=notice.process_generation,
            )
        )

    def _ask(self, method: str, params: dict[str, Any], settled: Callable[[OwnRequest], None]) -> None:
        try:
            self._connection.request(method, params, settled)
        except BrokerError as error:
            request = OwnRequest(method, params, settled, settled=True, error=error)
            settled(request)

    def _log(self, text: str) -> None:
        self._connection.emit(Log(text))


def _ack_error(request: OwnRequest, binding: str | None) -> BrokerError | None:
    try:
        ack = decode(BusAck, request.result, what=f"result of {request.method}")
    except BrokerError as error:
        return error
    return None if ack.binding_id == binding else ProtocolError("the acknowledgement names another binding")


def _field_json(item: Field) -> dict[str, Any]:
    member: dict[str, Any] = {
        "name": item.name,
        "kind": item.kind,
        "required": item.required,
        "max_bytes": item.max_bytes,
        "values": list(item.values),
    }
    for key in ("minimum", "maximum"):
        if (bound := getattr(item, key)) is not None:
            member[key] = bound
    return member
