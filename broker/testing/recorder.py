"""Writes down what happens in one session, in order and with virtual times, and asserts what must have happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import asdict

from broker.bus import trace
from broker.errors import UsageError
from broker.host import CatalogueChanged, Diagnostic, Exited, HealthChanged, Notice, ProcessLink, Session, Started
from broker.limits import MAX_RECORDED_ENTRIES
from broker.testing.assertions import Recorded
from broker.testing.faults import Fault
from broker.testing.memory_process import Frame
from broker.testing.sequence import Conversation, Entry, Kind, render

_BUS = "bus"


class Recorder(Recorded):
    """What happens in ``session`` from now on, as ``entries``; assertions raise ``AssertionError`` with the sequence.

    Frames are there for what taps them (:class:`~broker.testing.MemorySession` does); the records of the bus, the
    notices of the session and the calls of the test for any session.
    """

    def __init__(self, session: Session) -> None:
        self._entries: list[Entry] = []
        self.dropped: int = 0
        self._clock = session.clock
        self._began_ms = session.clock.monotonic_ms()
        self._conversations: dict[ProcessLink, Conversation] = {}
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._endings = (session.add_observer(self._noticed), session.bus.add_trace(self._traced))

    @property
    def entries(self) -> Sequence[Entry]:
        """Everything recorded; raises :class:`UsageError` when the oldest of it is gone."""
        return self.entries_from(0)

    def entries_from(self, first: int) -> Sequence[Entry]:
        """Everything recorded but the ``first`` entries; raises :class:`UsageError` when some of it is gone."""
        if first < self.dropped:
            raise UsageError(
                f"the recorder is full and dropped its first {self.dropped} entries; assert on recorder.from_here()",
                limit="MAX_RECORDED_ENTRIES",
                observed=self.dropped + len(self._entries),
                maximum=MAX_RECORDED_ENTRIES,
            )
        return tuple(self._entries[first - self.dropped :])

    def from_here(self) -> Part:
        """The entries from now on, with the same assertions."""
        return Part(self, self.dropped + len(self._entries))

    def add_listener(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call ``listener()`` after each entry, in the session's thread; gives a function that ends it."""
        self._listeners = (*self._listeners, listener)

        def remove() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return remove

    def close(self) -> None:
        """Record no more. Idempotent."""
        for end in self._endings:
            end()

    def __str__(self) -> str:
        return render(self._entries)

    def __repr__(self) -> str:
        return f"<Recorder of {self.dropped + len(self._entries)} entries>"

    # -- what is recorded ----------------------------------------------------------------------------------------------

    def frame(self, frame: Frame) -> None:
        """Write down a frame of a wire."""
        conversation = self._conversations.get(frame.link)
        if conversation is None:
            conversation = self._conversations[frame.link] = Conversation(frame.link.name)
        message = frame.data[:200].decode("utf-8", "replace") if frame.message is None else frame.message
        self._keep(conversation.read(message, heard=frame.direction == "heard", at_ms=self._at_ms))

    def fault(self, fault: Fault) -> None:
        """Write down a fault that happened."""
        self._note("fault", "test", fault.extension or "clock", fault.kind, payload=fault.options or None)

    def call(self, target: str, what: str, payload: Any, number: int) -> None:
        """Write down a step of a call of the test's own."""
        source, target = ("test", target) if what == "call" else (target, "test")
        self._note("call", source, target, what, payload=payload, id=number)

    @property
    def _at_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms

    def _noticed(self, notice: Notice) -> None:
        if isinstance(notice, HealthChanged):
            self._note("notice", notice.extension, "", notice.health.value, payload=notice.reason)
        elif isinstance(notice, Started):
            self._note("notice", notice.extension, "", "started", payload={"generation": notice.generation})
        elif isinstance(notice, Exited):
            payload = {"generation": notice.generation, "status": notice.status, "reason": notice.reason}
            self._note("notice", notice.extension, "", "exited", payload=payload)
        elif isinstance(notice, Diagnostic):
            self._note("notice", notice.extension, "", notice.source, payload=notice.text)
        elif isinstance(notice, CatalogueChanged):
            facts = {"revision": notice.revision, "tools": list(notice.tools)}
            self._note("notice", notice.extension, "", "catalogue", payload=facts)

    def _traced(self, record: trace.Record) -> None:
        what = type(record).__name__.lower()
        if isinstance(record, trace.Published):
            event = record.event
            self._note("bus", event.publisher, event.topic, what, payload=event.payload, id=event.sequence)
        elif isinstance(record, trace.Refused):
            payload = {"operation": record.operation, "error": str(record.error)}
            self._note("bus", record.peer, _BUS, what, payload=payload)
        elif isinstance(record, trace.Declared | trace.Withdrawn):
            self._note("bus", record.publisher, record.topic, what, payload={"revision": record.topic_revision})
        elif isinstance(record, trace.Subscribed):
            self._note("bus", record.peer, record.topic, what, payload=type(record.state).__name__.lower())
        elif isinstance(record, trace.Unsubscribed):
            self._note("bus", record.peer, record.topic, what)
        elif isinstance(record, trace.Rebound):
            self._note("bus", _BUS, "everyone", what, payload={"revision": record.binding_revision})
        else:
            facts = asdict(record)
            source = facts.pop("peer")
            del facts["instance_id"]
            self._note("bus", source, _BUS, what, payload=facts)

    def _note(self, kind: Kind, source: str, target: str, what: str, **more: Any) -> None:
        self._keep(Entry(self._at_ms, kind, source, target, what, **more))

    def _keep(self, entry: Entry) -> None:
        self._entries.append(entry)
        for listener in self._listeners:
            listener()
        if len(self._entries) > MAX_RECORDED_ENTRIES:
            room = max(1, MAX_RECORDED_ENTRIES // 10)
            del self._entries[:room]
            self.dropped += room


class Part(Recorded):
    """The entries of ``recorder`` from its ``first`` one on."""

    def __init__(self, recorder: Recorder, first: int) -> None:
        self._recorder = recorder
        self._first = first

    @property
    def entries(self) -> Sequence[Entry]:
        """What was recorded since, oldest first; raises :class:`UsageError` when some of it is gone."""
        return self._recorder.entries_from(self._first)
