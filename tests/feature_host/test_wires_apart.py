"""The two wires of the extension API never mix: not in the manifest, not in a session, not in a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import feature_scripts as play
import pytest
from feature_kit import start_feature

from broker.errors import CapabilityMismatchError
from broker.host import FeatureGeneration, Generation
from broker.testing import ScriptedExtension
from broker.wire.feature.methods import METHODS
from broker.wire.octet.contract import METHODS as CANONICAL_METHODS

Open = Callable[..., Any]
BOTH = {"initialize", "tool/call", "hook/run", "shutdown", "context/collect", "$/cancelRequest"} | {
    f"session/{name}" for name in ("create", "fork", "switch", "reload")
}


class Legacy(ScriptedExtension):
    """A canonical extension that tries every request of the other wire, and keeps what it is answered."""

    def __init__(self) -> None:
        super().__init__(tools=("work",))
        self.answers: dict[Any, Any] = {}

    def on_message(self, message: dict[str, Any]) -> None:
        super().on_message(message)
        if message.get("method") == "tool/call":
            for name, row in METHODS.items():
                if row.from_extension and not row.notification and name not in CANONICAL_METHODS:
                    self.request(name, name.replace("*", "x"), {"parent_request_id": message["id"]})
        elif "method" not in message:
            self.answers[message["id"]] = message.get("error", message.get("result"))


@pytest.mark.spec("octet.version.no-retag")
def test_no_request_of_this_wire_is_served_on_the_canonical_one(open_memory: Open, service: Any) -> None:
    world = open_memory(service.bind("inputs", "secrets", "policy", "composer"))
    extension = world.start(Legacy, name="alpha")
    world.call("alpha", "work")
    world.run()
    script = world.processes[-1]
    assert len(script.answers) > 30
    assert {answer["code"] for answer in script.answers.values()} == {-32601}
    assert service.log == []
    assert {message["method"] for message in script.received if "method" in message} == {"initialize", "tool/call"}
    assert "protocol" not in script.received[0]["params"]
    assert isinstance(extension.generation, Generation)
    for ask in (
        lambda: extension.contributions.execute("go"),
        lambda: extension.contributions.collect_context("x"),
        lambda: extension.contributions.tell("turn/started", {}),
    ):
        with pytest.raises(CapabilityMismatchError, match=r"API 0\.3 has no"):
            ask()
    assert (extension.contributions.commands, extension.contributions.features) == ((), frozenset())


@pytest.mark.spec("octet.version.no-retag", "octet.legacy.no-canonical-services")
def test_the_wires_share_only_the_names_that_the_reference_gives_both() -> None:
    assert set(METHODS) & set(CANONICAL_METHODS) - {"tools/register", "tools/unregister"} == BOTH


@pytest.mark.spec("octet.version.exact-selection")
def test_extensions_of_all_four_versions_run_side_by_side(open_memory: Open) -> None:
    world = open_memory()
    for version in ("0.1", "0.2", "0.4"):
        start_feature(world, play.Plain, version, name=f"tide{version[-1]}")
    world.start(ScriptedExtension(tools=("work",), capabilities=("event_bus",)), name="tide3")
    kinds = {name: type(end.generation) for name, end in world.session.extensions.items()}
    assert kinds == {
        "tide1": FeatureGeneration,
        "tide2": FeatureGeneration,
        "tide4": FeatureGeneration,
        "tide3": Generation,
    }
    assert [peer.name for peer in world.bus.statistics().peers] == ["tide3"]
    for name in kinds:
        assert world.call(name, "work").is_error is False
