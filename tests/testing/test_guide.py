"""The examples of the testing guide that need pytest; docs/testing.rst shows them from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from broker import Field
from broker.errors import ExitedError
from broker.testing import DrivenSession, Interleaving, MemoryHost, MemorySession, ScriptedExtension, interleavings


class Greeter(ScriptedExtension):
    """Greets, and goes down when it is told to."""

    def __init__(self) -> None:
        super().__init__(tools=("greet", "crash"))

    def on_message(self, message: dict[str, Any]) -> None:
        if message.get("method") != "tool/call":
            super().on_message(message)
        elif message["params"]["name"] == "crash":
            self.exit(3)
        else:
            text = {"type": "text", "text": "hello"}
            self.answer(message["id"], {"content": [text], "is_error": False, "metadata": None})


def test_greeting(broker_session: MemorySession) -> None:
    broker_session.start(Greeter)
    assert broker_session.call("greeter", "greet").content[0].text == "hello"


def test_a_crash_is_got_over(broker_session: MemorySession) -> None:
    greeter = broker_session.start(Greeter)
    with pytest.raises(ExitedError, match="exited with status 3"):
        broker_session.call("greeter", "crash")
    broker_session.until(lambda: greeter.health.value == "ready")
    broker_session.recorder.in_order("ready", "crashed", "backoff", "ready")


def test_a_crash_is_got_over_both_ways(broker_both_ways: Callable[..., DrivenSession]) -> None:
    session = broker_both_ways()
    greeter = session.start(Greeter)
    with pytest.raises(ExitedError, match="exited with status 3"):
        session.call("greeter", "crash")
    session.until(lambda: greeter.health.value == "ready")
    assert session.exits() == [(1, 3, "greeter (generation 1): exited with status 3 while it was in use")]


def test_expiry(broker_bus: Any, broker_clock: Any) -> None:
    alpha, beta = broker_bus.attach("alpha"), broker_bus.attach("beta")
    alpha.declare("bus.alpha.tick", [Field.integer("n")])
    beta.subscribe("bus.alpha.tick")
    alpha.publish("bus.alpha.tick", {"n": 1})
    broker_clock.advance_ms(30_001)
    assert beta.take() is None


@given(interleavings())
@settings(max_examples=20)
def test_greeting_in_any_order(order: Interleaving) -> None:
    with MemoryHost(schedule=order) as host, host.open_session() as session:
        session.add(Greeter)
        session.add(Greeter, name="other")
        session.start()
        assert session.call("greeter", "greet").content[0].text == "hello"
