"""Playing a recorded session again, in memory: the processes say what they said, and the host is the real one.

A recording of a fault becomes a test: the same bytes at the same (virtual) moments, without the extensions, and every
frame the host says is held against the one it said when it was recorded. What differs by nature, such as the ids of a
session, is translated; a text that was redacted equals anything. Messages of the bus are compared in their order, and
all other frames in theirs: which of the two came first is a matter of when a pipe was ready. The format is that of
:mod:`broker.host.recording`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from broker import canonical
from broker.errors import BrokerError, SetupError
from broker.host import Host, HostServices, Outcome, ProcessLink, Session
from broker.host.extension import Call
from broker.host.mcp_call import McpCall
from broker.host.recording import Header, RecordedEntry, read_recording
from broker.limits import MAX_RECORDING_BYTES, MAX_REPLAYED_LINE_BYTES, REPLAY_END_MS
from broker.testing.clock import ManualClock
from broker.testing.memory import MemoryDriver
from broker.testing.recorded_frames import begins_end, expected_of, of_the_bus, read_frame, timeless, told_of_end
from broker.testing.scripted import ScriptedProcess
from broker.wire.odek.approval import ApprovalRequest
from broker.wire.odek.events.redaction import REDACTED
from broker.wire.quoting import quote

_OPAQUE: Final = re.compile("[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@frozen
class Difference:
    """One frame of the host that is not what was recorded.

    ``entry`` is the recorded one, None for a frame that was not recorded; ``observed`` what the host said, None when it
    said nothing. ``path`` is the first place where they differ.
    """

    name: str
    number: int
    problem: str
    path: str | None = None
    entry: RecordedEntry | None = None
    observed: bytes | None = None

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{self.name} (generation {self.number}){where}: {self.problem}"


class _Replayed(ScriptedProcess):
    """A process that says what it is told to, and keeps every line it hears: those of the bus, and the others."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: dict[bool, deque[bytes]] = {True: deque(), False: deque()}

    def on_message(self, message: bytes) -> None:
        self.unseen[of_the_bus(read_frame(message))].append(message)

    def decode(self, line: bytes) -> bytes:
        return line

    def on_eof(self) -> None:
        """It exits when its recording says so."""

    def on_terminate(self) -> None:
        """It exits when its recording says so."""


@define(eq=False)
class _Track:
    """One recorded process, and whether the host has started it. One that was stopped and started again is another."""

    name: str
    number: int
    process: _Replayed = field(factory=_Replayed)
    spawned: bool = False


class Replay:
    """One recording, played once. ``services`` is what the recorded host bound; ``broker record`` binds providers.

    Iterate over :meth:`play` to go entry by entry, or call :meth:`run`. ``session`` is the session it happens in: add
    observers before playing. ``differences`` grows while it is played.
    """

    def __init__(
        self,
        header: Header,
        entries: tuple[RecordedEntry, ...],
        *,
        complete: bool = True,
        services: HostServices | None = None,
    ) -> None:
        self.header: Header = header
        self.complete: bool = complete
        self.entries: tuple[RecordedEntry, ...] = entries
        self.clock: ManualClock = ManualClock(unix_ms=header.recorded_at_ms)
        self.differences: list[Difference] = []
        self.compared: int = 0
        self._tracks: list[_Track] = []
        self._names: dict[str, str] = {}
        self._calls: dict[tuple[str, int, str], Call | McpCall] = {}
        self._played = 0
        self._unspawned: dict[tuple[str, int], deque[_Track]] = {}
        current: dict[tuple[str, int], _Track] = {}
        for entry in entries:
            key = entry.name, entry.number
            if entry.kind == "start" or key not in current:
                current[key] = _Track(*key)
                self._unspawned.setdefault(key, deque()).append(current[key])
            self._tracks.append(current[key])
        factories: dict[str, Callable[[Any], ScriptedProcess]] = {entry.name: self._process_of for entry in entries}
        self.driver: MemoryDriver = MemoryDriver(self.clock, factories)
        host = Host(self.driver, clock=self.clock, services=services, approve=_approve)
        self.session: Session = host.open_session(header.workspace)
        # A restart is spread in time at random: here it comes at the earliest, and waits for its recorded moment.
        self.session.random_below = lambda bound: 0  # type: ignore[method-assign]

    @classmethod
    def read(cls, path: str | Path, *, services: HostServices | None = None) -> Replay:
        """The recording of a file; raises :class:`~broker.errors.SetupError` when it is none."""
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_RECORDING_BYTES + 1)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SetupError(f"{path}: {why}", path=str(path)) from error
        if len(data) > MAX_RECORDING_BYTES:
            raise SetupError(
                f"{path}: a recording holds at most {MAX_RECORDING_BYTES} bytes",
                path=str(path),
                limit="MAX_RECORDING_BYTES",
                maximum=MAX_RECORDING_BYTES,
            )
        header, entries, complete = read_recording(data, path=str(path))
        return cls(header, entries, complete=complete, services=services)

    def run(self) -> list[Difference]:
        """Play everything; gives every difference, in the order they were found."""
        for _ in self.play():
            pass
        return self.differences

    def play(self) -> Iterator[RecordedEntry]:
        """Play entry by entry, each given after it was played; the session is closed at the end.

        Of a recording that was cut (``complete`` is false) nobody knows what came then: it stops there.
        """
        for entry, track in zip(self.entries, self._tracks, strict=True):
            if (left := entry.at_ms - self.clock.monotonic_ms()) > 0:
                self.driver.advance(left)
            _ACTS[entry.kind](self, entry, track)
            self.driver.run()
            if entry.kind == "heard":
                self._compare(entry, track)
            self._played += 1
            yield entry
        if not self.complete:
            return
        for track in dict.fromkeys(self._tracks):
            for line in (*track.process.unseen[False], *track.process.unseen[True]):
                self._surplus(track.name, track.number, line)
        self.session.close()
        self.driver.advance(REPLAY_END_MS)

    # -- what each kind of entry does ----------------------------------------------------------------------------------

    def _start(self, entry: RecordedEntry, track: _Track) -> None:
        if track.spawned:
            return
        try:
            known = self.session.extensions.get(entry.name)
            if entry.manifest is not None and known is not None and entry.number > 1:
                known.reload(entry.manifest)
            elif entry.manifest is not None:
                if known is not None:
                    self.session.remove(entry.name)
                self.session.add(entry.manifest).start()
            elif entry.server is not None:
                self.session.add_server(entry.server).start()
        except BrokerError as error:
            self.differences.append(Difference(entry.name, entry.number, f"not started: {error}", entry=entry))
        self.driver.run()
        if not track.spawned:
            self.differences.append(
                Difference(entry.name, entry.number, "the host did not start what it had started", entry=entry)
            )

    def _heard(self, entry: RecordedEntry, track: _Track) -> None:
        """Do what made the host say this, where that was somebody outside of it."""
        if not isinstance(entry.frame, dict) or self._matching(entry, track) is not None:
            return
        method, params = entry.frame.get("method"), entry.frame.get("params")
        params = params if isinstance(params, dict) else {}
        number = (entry.name, entry.number, repr(entry.frame.get("id")))
        try:
            if method == "tool/call":
                self._calls[number] = self.session.call(entry.name, params["name"], params["arguments"])
            elif method == "tools/call":
                self._calls[number] = self.session.server(entry.name).call(params["name"], params.get("arguments"))
            elif method in ("$/cancelRequest", "notifications/cancelled"):
                call = self._calls.get((entry.name, entry.number, repr(params.get("id", params.get("requestId")))))
                if call is not None:
                    call.cancel(params.get("reason", "user"))
            elif begins_end(entry):
                for first in self._ended_together(entry):
                    self._stop(first)
        except (BrokerError, KeyError) as error:
            self.differences.append(Difference(entry.name, entry.number, f"not repeated: {error}", entry=entry))

    def _ended_together(self, end: RecordedEntry) -> list[RecordedEntry]:
        """``end``, and where each other end began that its host began with it in one go, as one that closes does.

        That is so before the process of ``end`` is gone, of everybody who was told nothing else in between: who is
        stopped later hears first that the topics of the other are gone.
        """
        begun: dict[str, RecordedEntry] = {}
        told: set[str] = set()
        for entry in self.entries[self._played :]:
            if entry.kind == "exited" and (entry.name, entry.number) == (end.name, end.number):
                break
            if entry.kind == "heard" and entry.name not in told and entry.name not in begun:
                if begins_end(entry):
                    begun[entry.name] = entry
                elif isinstance(entry.frame, dict) and "method" in entry.frame:
                    told.add(entry.name)
        return list(begun.values())

    def _stop(self, end: RecordedEntry) -> None:
        extension = self.session.extension(end.name)
        if extension.generation is not None and extension.generation.number == end.number:
            extension.stop(outcome=told_of_end(end).get("outcome", "completed"))

    def _sent(self, entry: RecordedEntry, track: _Track) -> None:
        track.process.send_bytes(self._bytes(entry))

    def _stderr(self, entry: RecordedEntry, track: _Track) -> None:
        track.process.send_stderr(self._bytes(entry))

    def _input_closed(self, entry: RecordedEntry, track: _Track) -> None:
        server = self.session.servers.get(entry.name)
        if server is not None and not track.process.stdin_closed:
            server.stop()

    def _output_closed(self, entry: RecordedEntry, track: _Track) -> None:
        track.process.close_stdout()

    def _exited(self, entry: RecordedEntry, track: _Track) -> None:
        track.process.exit(0 if entry.status is None else entry.status)

    # -- frames --------------------------------------------------------------------------------------------------------

    def _process_of(self, link: ProcessLink) -> _Replayed:
        unspawned = self._unspawned.get((link.name, link.number))
        if not unspawned:
            raise SetupError(f"generation {link.number} of {link.name} was not recorded", extension=link.name)
        track = unspawned.popleft()
        track.spawned = True
        return track.process

    def _bytes(self, entry: RecordedEntry) -> bytes:
        end = b"" if entry.torn else b"\n"
        if entry.is_frame:
            frame = self._translated(entry.frame)
            try:
                return canonical.encode(frame) + end
            except BrokerError:  # a number with a fraction: of a wire that has no canonical form
                return (
                    json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass") + end
                )
        data = (b"\xff" if entry.invalid else b"") + (entry.text or "").encode("utf-8", "surrogatepass")
        # A line over the bound of its wire is as much over it when it is cut there.
        return data.ljust(min(entry.length or 0, MAX_REPLAYED_LINE_BYTES)) + end

    def _translated(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._names.get(value, value)
        if isinstance(value, dict):
            return {key: self._translated(member) for key, member in value.items()}
        return [self._translated(member) for member in value] if isinstance(value, list) else value

    def _compare(self, entry: RecordedEntry, track: _Track) -> None:
        unseen = track.process.unseen[of_the_bus(entry.frame)]
        if not unseen:
            self.differences.append(Difference(entry.name, entry.number, "the host did not say it", entry=entry))
            return
        self.compared += 1
        matching = self._matching(entry, track)
        if matching is None:
            fault = self._difference(expected_of(entry), timeless(read_frame(unseen[0])), "$", {})
            path, problem = fault or ("$", "differs")
            self.differences.append(Difference(entry.name, entry.number, problem, path, entry, unseen.popleft()))
            return
        index, names = matching
        self._names |= names
        for _ in range(index):
            self._surplus(entry.name, entry.number, unseen.popleft())
        unseen.popleft()

    def _matching(self, entry: RecordedEntry, track: _Track) -> tuple[int, dict[str, str]] | None:
        """Where the recorded frame is among those not looked at yet, and what it says of this session's ids."""
        for index, line in enumerate(track.process.unseen[of_the_bus(entry.frame)]):
            names: dict[str, str] = {}
            if self._difference(expected_of(entry), timeless(read_frame(line)), "$", names) is None:
                return index, names
        return None

    def _surplus(self, name: str, number: int, line: bytes) -> None:
        problem = f"the host said what was not recorded: {quote(line)}"
        self.differences.append(Difference(name, number, problem, observed=line))

    def _difference(self, expected: Any, observed: Any, path: str, names: dict[str, str]) -> tuple[str, str] | None:
        """The first place where they differ, and how; ``names`` gets the ids of this session that were not known."""
        if isinstance(expected, str) and isinstance(observed, str):
            known = self._names.get(expected) or names.get(expected)
            if REDACTED in expected or (known or expected) == observed:
                return None
            if known is None and _OPAQUE.fullmatch(expected) and _OPAQUE.fullmatch(observed):
                names[expected] = observed
                return None
        elif isinstance(expected, dict) and isinstance(observed, dict):
            for key in sorted(expected.keys() | observed.keys()):
                if key not in expected or key not in observed:
                    return f"{path}.{key}", "was recorded and is missing" if key in expected else "was not recorded"
                found = self._difference(expected[key], observed[key], f"{path}.{key}", names)
                if found is not None:
                    return found
            return None
        elif isinstance(expected, list) and isinstance(observed, list) and len(expected) == len(observed):
            members = zip(expected, observed, strict=True)
            differences = (self._difference(*pair, f"{path}[{index}]", names) for index, pair in enumerate(members))
            return next((found for found in differences if found is not None), None)
        elif type(expected) is type(observed) and expected == observed:
            return None
        return path, f"recorded {quote(json.dumps(expected))}, observed {quote(json.dumps(observed))}"


_ACTS: Final[dict[str, Callable[[Replay, RecordedEntry, _Track], None]]] = {
    "start": Replay._start,
    "heard": Replay._heard,
    "sent": Replay._sent,
    "stderr": Replay._stderr,
    "input_closed": Replay._input_closed,
    "output_closed": Replay._output_closed,
    "exited": Replay._exited,
}


def _approve(request: ApprovalRequest) -> Outcome[bool]:
    outcome: Outcome[bool] = Outcome()
    outcome.succeed(True)
    return outcome
