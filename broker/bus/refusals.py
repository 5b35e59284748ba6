"""The refusals that several requests of a bus share: what is checked, and the one error that says it.

Nothing here changes anything: each function looks at what it is given and raises, or makes an error to be raised.
Source: octet reference, "Errors" and "Bounds"; design, "The bus".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.bus.fields import shown, topic_fault, utf8_size
from broker.errors import BrokerError, CapabilityMismatchError, Fault, InvalidParamsError, ResourceExhaustedError
from broker.limits import (
    MAX_BUS_BINDING_ID_BYTES,
    MAX_BUS_MESSAGE_BYTES,
    MAX_BUS_SUBSCRIPTIONS,
    MAX_BUS_TOPICS,
    MAX_REPORTED_FAULTS,
)

if TYPE_CHECKING:
    from broker.bus.peer import Peer
    from broker.bus.topic import Topic


def faults_error(what: str, faults: Sequence[Fault], *, topic: str | None = None) -> BrokerError:
    """One error for all faults of a value: ``invalid_params`` unless every fault is a passed bound.

    ``faults`` has all of them. The text names the first ones: a hostile payload has a hundred thousand.
    """
    bound = next((fault for fault in faults if fault.limit is not None), None)
    exhausted = all(fault.name == "resource_exhausted" for fault in faults)
    kind = ResourceExhaustedError if exhausted else InvalidParamsError
    texts = [str(fault) for fault in faults[:MAX_REPORTED_FAULTS]]
    if len(faults) > len(texts):
        texts.append(f"and {len(faults) - len(texts)} more")
    return kind(
        (f"{what}: " if what else "") + "; ".join(texts),
        topic=topic,
        path=faults[0].path,
        limit=bound.limit if bound else None,
        observed=bound.observed if bound else None,
        maximum=bound.maximum if bound else None,
        faults=faults,
    )


def check_topic(name: object) -> None:
    """Refuse what is not ``bus.<owner>.<name>``."""
    if fault := topic_fault(name):
        shown = name if type(name) is str else None
        raise faults_error("", [fault], topic=shown)


def check_binding_id(binding_id: object, current: str) -> None:
    """Refuse a binding id that is malformed (``invalid_params``) or not the current one (``capability_mismatch``)."""
    if type(binding_id) is str:
        if binding_id == current:
            return
        size = utf8_size(binding_id)
    else:
        size = None
    if not size or size > MAX_BUS_BINDING_ID_BYTES:
        observed = shown(binding_id) if size is None else f"{size} bytes"
        raise InvalidParamsError(
            f"binding_id: expected a string of 1 to {MAX_BUS_BINDING_ID_BYTES} bytes, got {observed}",
            path="binding_id",
            limit="MAX_BUS_BINDING_ID_BYTES",
            observed=size,
            maximum=MAX_BUS_BINDING_ID_BYTES,
        )
    raise CapabilityMismatchError(f"binding_id: {shown(binding_id)} is not the current binding", path="binding_id")


def check_takeover(peer: Peer, older: Topic) -> None:
    """Refuse to declare a topic again, but for a newer generation of the peer that declared it."""
    if older.owner is peer:
        raise InvalidParamsError(f"topic {older.name} is declared already", topic=older.name)
    if older.generation > peer.generation:
        raise CapabilityMismatchError(
            f"topic {older.name} belongs to generation {older.generation} of {older.publisher}", topic=older.name
        )


def too_many_topics(name: str, declared: int) -> BrokerError:
    """The bus has all the topics it may have."""
    return ResourceExhaustedError(
        f"declaration of {name}: the bus has {MAX_BUS_TOPICS} topics",
        topic=name,
        limit="MAX_BUS_TOPICS",
        observed=declared + 1,
        maximum=MAX_BUS_TOPICS,
    )


def too_many_subscriptions(name: str, subscriber: str, interests: int) -> BrokerError:
    """The peer has all the interests it may have."""
    return ResourceExhaustedError(
        f"subscription to {name}: {subscriber} has {MAX_BUS_SUBSCRIPTIONS}",
        topic=name,
        subscriber=subscriber,
        limit="MAX_BUS_SUBSCRIPTIONS",
        observed=interests + 1,
        maximum=MAX_BUS_SUBSCRIPTIONS,
    )


def event_too_large(name: str, size: int) -> BrokerError:
    """The event's frame is larger than any bus admits."""
    return ResourceExhaustedError(
        f"publication to {name}: its frame has {size} bytes, at most {MAX_BUS_MESSAGE_BYTES} are allowed",
        topic=name,
        limit="MAX_BUS_MESSAGE_BYTES",
        observed=size,
        maximum=MAX_BUS_MESSAGE_BYTES,
    )


def no_room(name: str, subscriber: str, fault: Fault) -> BrokerError:
    """One subscriber's inbox cannot take the event, so nobody gets it."""
    return ResourceExhaustedError(
        f"publication to {name}: subscriber {subscriber} has no room: {fault}",
        topic=name,
        subscriber=subscriber,
        limit=fault.limit,
        observed=fault.observed,
        maximum=fault.maximum,
        faults=[fault],
    )
