"""The ``bus/*`` requests of one process generation, carried out on its peer (octet reference, the ``bus/*`` methods).

The request's own ``binding_id`` goes to the kernel as it is: a request that was decided under an older binding is
refused there, never rewritten.
"""

from __future__ import annotations

from typing import Any

from attrs import asdict

from broker.bus import Active, Field, Peer
from broker.errors import CapabilityMismatchError
from broker.wire.jsonrpc import ABSENT
from broker.wire.octet.bus_models import BusDeclareParams, BusFieldSpec, BusPublishParams, BusTopicParams


def run(peer: Peer, method: str, params: Any) -> dict[str, Any]:
    """The result of one bus request. Raises the kernel's refusal, which carries the error table's code."""
    if isinstance(params, BusDeclareParams):
        peer.declare(params.topic, [_field(spec) for spec in params.fields], binding_id=params.binding_id)
        return {"binding_id": params.binding_id}
    if isinstance(params, BusPublishParams):
        receipt = peer.publish(params.topic, params.payload, binding_id=params.binding_id)
        return {"binding_id": params.binding_id, **receipt._asdict()}
    if isinstance(params, BusTopicParams) and method == "bus/subscribe":
        state = peer.subscribe(params.topic, binding_id=params.binding_id)
        word = "active" if isinstance(state, Active) else "pending"
        return {"binding_id": params.binding_id, "state": word, **asdict(state)}
    if isinstance(params, BusTopicParams) and method == "bus/unsubscribe":
        peer.unsubscribe(params.topic, binding_id=params.binding_id)
        return {"binding_id": params.binding_id}
    raise CapabilityMismatchError(f"{method} is not a bus request", method=method)


def _field(spec: BusFieldSpec) -> Field:
    return Field(
        spec.name,
        spec.kind,
        spec.required,
        spec.max_bytes,
        spec.values,
        spec.minimum if spec.minimum is not ABSENT else None,
        spec.maximum if spec.maximum is not ABSENT else None,
    )
