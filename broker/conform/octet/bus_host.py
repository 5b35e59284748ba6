"""The bus as one extension under test meets it: a real one, whose refusals say which rule was broken."""

from __future__ import annotations

import secrets
from typing import Any, Final

from broker.bus import Bus, Field, Peer
from broker.conform.findings import Findings
from broker.conform.octet.peer import Incoming, OctetPeer
from broker.errors import BrokerError, ResourceExhaustedError
from broker.host import bus_service
from broker.wire.octet.bus_models import BusDeclareParams, BusPublishParams, BusTopicParams
from broker.wire.octet.model_table import params_model
from broker.wire.octet.schema import decode
from broker.wire.quoting import quote

METHODS: Final = ("bus/declare", "bus/subscribe", "bus/unsubscribe", "bus/publish")
_SCREENED: Final = (
    "contains a control character",
    "contains '@'",
    "looks like",
    "is an absolute path",
    "is a path in a home directory",
    "is a drive path",
)


class BusHost:
    """Serves the bus to ``peer``: answers its requests, tells it what happens, and keeps account of both.

    ``declared`` and ``subscribed`` are the topics it asked for under the current binding. With ``holding`` answers to
    declarations wait for :meth:`release`; ``refuse_next`` publications are refused with ``resource_exhausted``.
    """

    def __init__(self, peer: OctetPeer, findings: Findings, name: str) -> None:
        self._peer = peer
        self._findings = findings
        self._bus = Bus()
        self._name = name
        self._own: Peer | None = None
        self._others: dict[str, Peer] = {}
        self._held: list[Incoming] = []
        self._old_bindings: set[str] = set()
        self._current = False
        self.declared: dict[str, BusDeclareParams] = {}
        self.subscribed: set[str] = set()
        self.subscriptions: list[str] = []
        self.published: int = 0
        self.refused: int = 0
        self.refuse_next: int = 0
        self.holding: bool = False
        for method in METHODS:
            peer.handlers[method] = self._serve

    @property
    def binding_id(self) -> str:
        """The current binding."""
        return self._bus.binding_id

    def bind(self, bound: int) -> None:
        """Let the extension take part: the binding is told."""
        self._own = self._bus.attach(
            self._name,
            instance_id=secrets.token_hex(16),
            generation=1,
            max_frame_bytes=bound,
            announce_binding=True,
        )
        self.pump()

    def reset(self) -> None:
        """Bind it anew: everything asked for before is gone."""
        self._old_bindings.add(self._bus.binding_id)
        self._current = False
        self._bus.reset()
        self.declared, self.subscribed = {}, set()
        self.pump()

    def release(self) -> None:
        """Answer the declarations that were held back."""
        self.holding = False
        held, self._held = self._held, []
        for incoming in held:
            self._settle(incoming)

    def publish_foreign(self, topic: str, fields: list[Field], payload: dict[str, Any] | None) -> None:
        """Have the owner of ``topic`` declare it, or with a ``payload`` publish on it."""
        owner = topic.split(".")[1]
        other = self._others.get(owner)
        if other is None:
            other = self._others[owner] = self._bus.attach(f"{owner}")
        if payload is None:
            other.declare(topic, fields)
        else:
            other.publish(topic, payload)
        self.pump()

    def lose(self, topic: str) -> None:
        """The owner of ``topic`` goes away."""
        self._others.pop(topic.split(".")[1]).detach()
        self.pump()

    def pump(self) -> None:
        """Have everything written that the bus has for the extension."""
        while self._own is not None and (message := self._own.take()) is not None:
            self._peer.send_soon(message.frame + b"\n")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _serve(self, incoming: Incoming) -> dict[str, Any] | None:
        params: Any = decode(params_model(incoming.method), incoming.params)
        what = f"{incoming.method} of {quote(str(incoming.params.get('topic')))}"
        if self._own is None:
            self._findings.failed("octet.bus.binding-first", f"{what} came before the bus was bound")
            raise ResourceExhaustedError("not bound")
        if params.binding_id != self.binding_id:
            if params.binding_id not in self._old_bindings or self._current:
                self._findings.failed(
                    "octet.bus.binding-stale",
                    f"{what} carries the binding {quote(params.binding_id)}, the current is {quote(self.binding_id)}",
                )
        else:
            self._current = True
        if isinstance(params, BusDeclareParams) and self.holding:
            self._held.append(incoming)
            return None
        if isinstance(params, BusPublishParams):
            self._judge_publish(params, what)
            if self.refuse_next > 0 and params.binding_id == self.binding_id:
                self.refuse_next -= 1
                self.refused += 1
                raise ResourceExhaustedError("refused on purpose")
        return self._run(incoming)

    def _judge_publish(self, params: BusPublishParams, what: str) -> None:
        self.published += 1
        waiting = [one for one in self._held if one.params["topic"] == params.topic]
        if waiting:
            self._findings.failed(
                "octet.bus.declare-acknowledged", f"{what} came while the declaration waited for its answer"
            )

    def _settle(self, incoming: Incoming) -> None:
        try:
            result = self._run(incoming)
        except BrokerError as error:
            self._peer.refuse_incoming(incoming, error.name)
        else:
            self._peer.answer_incoming(incoming, result)

    def _run(self, incoming: Incoming) -> dict[str, Any]:
        assert self._own is not None
        params: Any = decode(params_model(incoming.method), incoming.params)
        current = params.binding_id == self.binding_id
        try:
            result = bus_service.run(self._own, incoming.method, params)
        except BrokerError as error:
            if current:
                rule = refusal_rule(incoming.method, error)
                if not (isinstance(params, BusPublishParams) and self._is_held(params.topic)):
                    self._findings.failed(rule, f"{incoming.method} refused: {error}")
            raise
        if isinstance(params, BusDeclareParams):
            self.declared[params.topic] = params
        elif isinstance(params, BusTopicParams) and incoming.method == "bus/subscribe":
            self.subscribed.add(params.topic)
            self.subscriptions.append(params.topic)
        elif isinstance(params, BusTopicParams):
            self.subscribed.discard(params.topic)
        self._peer.probe.call_soon(self.pump)
        return result

    def _is_held(self, topic: str) -> bool:
        return any(one.params["topic"] == topic for one in self._held)


def refusal_rule(method: str, error: BrokerError) -> str:
    """The id of the rule that the bus's refusal of a request is about."""
    text, path = str(error), error.path or ""
    if path == "topic":
        return "octet.bus.topic-form"
    if method == "bus/declare":
        if "belongs to another" in text:
            return "octet.bus.topic-owner"
        return "octet.bus.declare-once" if "is declared already" in text else "octet.bus.declare-faults"
    if method in ("bus/subscribe", "bus/unsubscribe"):
        return "octet.bus.subscriptions-bound"
    if "it belongs to" in text:
        return "octet.bus.publish-foreign"
    if "not a declared topic" in text:
        return "octet.bus.publish-undeclared"
    if error.limit == "MAX_BUS_MESSAGE_BYTES":
        return "octet.bus.message-over-bound"
    problem = error.faults[0].problem if error.faults else text
    screened = error.name == "invalid_params" and problem.startswith(_SCREENED)
    return "octet.bus.payload-screened" if screened else "octet.bus.payload-faults"
