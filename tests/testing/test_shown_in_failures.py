"""What pytest prints of the things that tests hold, and which class ``with`` gives back."""

from __future__ import annotations

import re
from typing import Any, Self, get_type_hints

import pytest
from kit_members import Echo

from broker.adapters.aio import AsyncHost, AsyncSession
from broker.adapters.blocking import BlockingHost, BlockingSession
from broker.host import Outcome
from broker.testing import MemoryHost, MemorySession, MixedHost, ProcessHost, ScriptedExtension, ScriptedServer
from broker.testing.sequence import literal


def test_what_is_printed_says_what_it_is_and_how_it_stands() -> None:
    with MemoryHost(seed=3) as host, host.open_session() as session:
        echo = session.start(Echo)
        server = session.start(lambda: ScriptedServer({"work": "done"}), name="srv")
        call, crash = session.begin("echo", "never"), session.begin("echo", "crash")
        assert repr(host) == "MemoryHost(seed=3)"
        assert repr(session) == "<MemorySession of echo, srv>"
        assert repr(echo) == "<Extension echo generation 1 ready>"
        assert repr(server) == "<McpServer srv ready>"
        assert repr(call) == "<Call open>"
        process = session.process("echo")
        assert repr(process).startswith("<Echo running, heard ")
        session.run()
        assert repr(process).startswith("<Echo exited with 3, heard ")
        assert repr(echo) == "<Extension echo backoff>"
        assert repr(crash).startswith("<Call failed: ExitedError: echo (generation 1): exited with status 3")
        assert repr(session.recorder) == f"<Recorder of {len(session.recorder.entries)} entries>"
    done: Outcome[int] = Outcome()
    done.succeed(1)
    assert repr(done) == "<Outcome succeeded>"


@pytest.mark.parametrize(
    ("cls", "enter"),
    [
        (AsyncHost, "__aenter__"),
        (AsyncSession, "__aenter__"),
        (MixedHost, "__aenter__"),
        (BlockingHost, "__enter__"),
        (BlockingSession, "__enter__"),
        (MemoryHost, "__enter__"),
        (MemorySession, "__enter__"),
        (ProcessHost, "__enter__"),
    ],
)
def test_a_context_gives_its_own_class_to_type_checkers(cls: Any, enter: str) -> None:
    """A :class:`MixedHost` that were an ``AsyncHost`` to them would take no objects."""
    assert get_type_hints(getattr(cls, enter))["return"] is Self


class Deep(ScriptedExtension):
    """Answers with JSON that is nested deeper than some Pythons can show."""

    def on_message(self, message: dict[str, Any]) -> None:
        self.send_bytes(b'{"jsonrpc":"2.0","method":"x","params":{"a":' + b"[" * 1_000 + b"]" * 1_000 + b"}}\n")


def test_what_is_too_deep_to_be_shown_does_not_hide_the_rest() -> None:
    with MemoryHost() as host, host.open_session() as session:
        session.add(Deep).start()
        session.run()
        # How deep is too deep differs from one Python to the next.
        assert re.search(
            r"deep -> host  x              (\(nested too deep to be shown\)|\{.*)\n", str(session.recorder)
        )


def test_a_value_that_is_too_deep_is_said_to_be() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert literal(value) == "(nested too deep to be shown)"
