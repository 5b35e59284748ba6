"""The provider registry and the order of a stream's events, against the plainest code for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_scripts import declaration

from broker.errors import BrokerError, StreamError
from broker.host import Principal, ProviderRegistry
from broker.wire.octet.provider_models import ProviderRegisterParams
from broker.wire.octet.schema import decode
from broker.wire.octet.stream_models import ProviderStreamEvent
from broker.wire.octet.stream_receiver import StreamReceiver

OWNERS = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3))
CHANGES = st.tuples(
    st.sampled_from(["register", "update", "unregister", "withdraw"]),
    OWNERS,
    st.sampled_from([f"p{n}" for n in range(4)]),
    st.sampled_from([0, 1, 100, 200]),
)


class Registry:
    """Who holds which provider with how many models, as the reference and its notes have it."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, int, int]] = {}
        self.revision = 0

    def change(self, what: str, owner: tuple[str, int], provider: str, models: int) -> str | None:
        """Make the change, or give the name of the error."""
        instance, generation = owner
        holder = self.held.get(provider)
        if what == "withdraw":
            gone = [name for name, (i, g, _) in self.held.items() if (i, g) == owner]
            for name in gone:
                del self.held[name]
            self.revision += bool(gone)
            return None
        if what == "unregister":
            if holder is None or holder[:2] != owner:
                return "invalid_params"
            del self.held[provider]
            self.revision += 1
            return None
        if what == "register" and holder is not None and not (holder[0] == instance and holder[1] < generation):
            return "invalid_params"
        if what == "update" and (holder is None or holder[0] != instance or holder[1] > generation):
            return "invalid_params"
        if sum(n for name, (_, _, n) in self.held.items() if name != provider) + models > 256:
            return "resource_exhausted"
        self.held[provider] = (instance, generation, models)
        self.revision += 1
        return None


@pytest.mark.spec("octet.provider.aggregate-bounds", "octet.provider.revision", "octet.provider.owner-gone")
@given(changes=st.lists(CHANGES, max_size=30))
@settings(max_examples=100, deadline=None)
def test_the_registry_does_what_the_model_does(changes: list[tuple[str, tuple[str, int], str, int]]) -> None:
    model, registry = Registry(), ProviderRegistry()
    for what, (instance, generation), provider, count in changes:
        owner = Principal("s", "ext", instance, generation)
        expected = model.change(what, (instance, generation), provider, count)
        found: str | None = None
        try:
            if what == "withdraw":
                registry.withdraw(owner)
            elif what == "unregister":
                registry.unregister(owner, provider)
            else:
                params = decode(ProviderRegisterParams, declaration(provider))
                models = tuple(
                    type(params.models[0])(**{**_members(params.models[0]), "id": f"m{n}"}) for n in range(count)
                )
                getattr(registry, what)(owner, params.provider, models)
        except BrokerError as error:
            found = error.name
        assert found == expected
        assert registry.revision == model.revision
        assert {
            one.id: (one.owner.instance_id, one.owner.generation, len(one.models)) for one in registry.providers
        } == model.held


def _members(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.__slots__ if not name.startswith("__")}


EVENTS = st.tuples(
    st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1, 5]),
    st.sampled_from(["started", "text_delta", "heartbeat", "usage", "finished", "error"]),
    st.booleans(),
)
RIGHT = {
    "started": {},
    "text_delta": {"index": 0, "delta": "x"},
    "heartbeat": {},
    "usage": {},
    "finished": {"stop_reason": "stop"},
    "error": {},
}


@pytest.mark.spec("octet.provider.stream-sequence", "octet.provider.stream-terminal", "octet.provider.stream-kinds")
@given(events=st.lists(EVENTS, max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_stream_is_read_as_the_model_reads_it(events: list[tuple[int, str, bool]]) -> None:
    receiver = StreamReceiver("s")
    count, over = 0, False
    for off, kind, spoilt in events:
        sequence = count + off
        looked_at = kind not in ("heartbeat", "error")
        payload = {"bad": 1} if spoilt else RIGHT[kind]
        if over or sequence != count or (spoilt and looked_at):
            expected = "fault"
        elif kind == "error":
            expected = "failed"
        else:
            expected = "nothing" if kind == "heartbeat" else "payload"
        try:
            got = receiver.receive(ProviderStreamEvent(stream_id="s", sequence=sequence, kind=kind, payload=payload))
        except StreamError as error:
            assert error.reason == expected
            return
        assert expected == ("nothing" if got is None else "payload")
        count += 1
        over = kind in ("finished", "error")
        assert (receiver.received, receiver.finished) == (count, over)
