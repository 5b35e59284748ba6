"""The example of the testing guide that runs both ways; docs/testing.rst shows it from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import ExitedError
from broker.testing import DrivenSession, ScriptedExtension


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


def test_a_crash_is_got_over_both_ways(broker_both_ways: Callable[..., DrivenSession]) -> None:
    session = broker_both_ways()
    greeter = session.start(Greeter)
    with pytest.raises(ExitedError, match="exited with status 3"):
        session.call("greeter", "crash")
    session.until(lambda: greeter.health.value == "ready")
    assert session.exits() == [(1, 3, "greeter (generation 1): exited with status 3 while it was in use")]
