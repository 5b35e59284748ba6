"""Plays a script: one run of it, as the process of one generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from broker.errors import UsageError
from broker.host import ProcessLink
from broker.limits import SEQUENCE_COLUMNS
from broker.testing.matching import Captures, filled_in, problems
from broker.testing.plan import ProcessPlan, process_of
from broker.testing.script import (
    Act,
    Answer,
    AnyOrder,
    Expect,
    ExpectAnswer,
    Script,
    Send,
    Step,
)
from broker.testing.scripted import ScriptedExtension, ScriptedFeatureExtension, ScriptedProcess, ScriptedServer
from broker.testing.sequence import Conversation, Entry, SequenceError, brief, cut, literal, read_message, render

_MESSAGE_COLUMNS: Final = SEQUENCE_COLUMNS - 4
_HANDSHAKE: Final = frozenset({"initialize", "notifications/initialized"})
# What a good extension answers by itself, unless the script mentions it.
_AUTOMATIC: Final = frozenset({"initialize", "shutdown", "tools/list", "ping"})


class ScriptError(SequenceError):
    """Something came that no step of a script expects, or a step is left whose message never came."""


class _Track:
    """A list of steps and how far it is played; one at an ``any_order`` waits for those of its branches."""

    def __init__(self, steps: Sequence[Step], place: str, parent: _Track | None = None) -> None:
        self.steps: Sequence[Step] = steps
        self.place = place
        self.at = 0
        self.branches: list[_Track] = []
        self.asked: Any = None if parent is None else parent.asked
        self.told: Any = None if parent is None else parent.told
        self.until_ms: int | None = None

    @property
    def step(self) -> Step | None:
        return self.steps[self.at] if self.at < len(self.steps) else None

    @property
    def shown(self) -> str:
        """Which step it is at."""
        return f"{self.place} {self.at + 1} of {len(self.steps)}"

    def leaves(self) -> Iterator[_Track]:
        """The tracks that wait for something themselves."""
        if self.branches:
            for branch in self.branches:
                yield from branch.leaves()
        elif self.step is not None:
            yield self


class ScriptRun:
    """One run of ``script`` by ``process``, the generation of ``link``."""

    def __init__(self, script: Script, process: ScriptedProcess, name: str, link: ProcessLink | None) -> None:
        self.script: Script = script
        self.exchange: list[Entry] = []
        self._conversation = Conversation(name)
        self._process = process
        self.name: str = name
        self._link = link
        self._track = _Track(script.steps, "step")
        self._captures: Captures = {}
        self._requests = 0
        self._now_ms = 0
        self._began = False
        self._first_ms: int | None = None
        self._begins_after = "notifications/initialized" if script.version == "mcp" else "initialize"

    @property
    def played(self) -> bool:
        """Whether every step was played."""
        return self._track.step is None

    def hear(self, message: Any) -> bool:
        """Play what ``message`` sets off; False leaves it to the process that the script is laid over."""
        self.note(message, heard=True)
        if not self._began and self.script.mentioned & _HANDSHAKE:
            self.begin()
        waiting = [leaf for leaf in self._track.leaves() if isinstance(leaf.step, Expect | ExpectAnswer)]
        differences: list[tuple[_Track, list[str]]] = []
        for leaf in waiting:
            captures = dict(self._captures)
            found = list(self._problems(leaf, message, captures))
            if not found:
                self._captures = captures
                self._met(leaf, message)
                return True
            differences.append((leaf, found))
        if self._passes_by(message):
            return False
        raise ScriptError(self._mismatch(message, differences))

    def after(self, message: Any) -> None:
        """``message`` was answered without the script; at the end of the handshake it begins."""
        if not self._began and message.get("method") == self._begins_after:
            self.begin()

    def begin(self) -> None:
        """Play the steps that wait for nothing."""
        self._began = True
        self._play()

    def tick(self, now_ms: int) -> None:
        """Go on with what waited for the time."""
        self._now_ms = now_ms
        for leaf in list(self._track.leaves()):
            if leaf.until_ms is not None and now_ms >= leaf.until_ms:
                leaf.until_ms = None
                leaf.at += 1
                self._play()

    def next_deadline(self) -> int | None:
        """When :meth:`tick` has something to do."""
        return min((leaf.until_ms for leaf in self._track.leaves() if leaf.until_ms is not None), default=None)

    def check_played(self) -> None:
        """Raise :class:`ScriptError` with what is left, if anything is."""
        if not self.played:
            left = "\n".join(f"    {leaf.shown}: {leaf.step}" for leaf in self._track.leaves())
            raise ScriptError(
                f"the script of {self.name} was not played to its end; it waits at\n{left}\n"
                f"the exchange so far:\n{render(self.exchange)}"
            )

    def note(self, message: Any, *, heard: bool) -> None:
        """Write down a message that was heard or sent."""
        self.exchange.append(self._conversation.read(message, heard=heard, at_ms=self._at_ms))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _clock_ms(self) -> int:
        return self._now_ms if self._link is None else self._link.session.clock.monotonic_ms()

    @property
    def _at_ms(self) -> int:
        """Milliseconds since the first message."""
        if self._first_ms is None:
            self._first_ms = self._clock_ms()
        return self._clock_ms() - self._first_ms

    def _problems(self, leaf: _Track, message: Any, captures: Captures) -> Iterator[str]:
        step = leaf.step
        if isinstance(step, Expect):
            if message.get("method") != step.method:
                yield f"method: expected {literal(step.method)}, came {literal(read_message(message)[0])}"
                return
            yield from problems(step.params, message.get("params"), "params", captures)
            yield from problems(step.id, message.get("id"), "id", captures)
        elif isinstance(step, ExpectAnswer):
            wanted = leaf.told if step.id is None else filled_in(step.id, captures)
            if "method" in message or message.get("id") != wanted:
                yield f"expected the answer to {literal(wanted)}, came {_what(message)}"
            elif step.kind not in message:
                yield f"expected a{'n error' if step.kind == 'error' else ' result'}, came {_what(message)}"
            else:
                yield from problems(step.value, message[step.kind], step.kind, captures)

    def _met(self, leaf: _Track, message: dict[str, Any]) -> None:
        if "method" in message and "id" in message:
            leaf.asked = message["id"]
        leaf.at += 1
        self._play()

    def _play(self) -> None:
        """Do every step that waits for nothing."""
        moved = True
        while moved:
            done = [self._play_one(leaf) for leaf in list(self._track.leaves())]
            moved = _join(self._track) or any(done)

    def _play_one(self, leaf: _Track) -> bool:
        step = leaf.step
        if step is None or isinstance(step, Expect | ExpectAnswer) or leaf.until_ms is not None:
            return False
        if isinstance(step, Act) and step.kind == "wait":
            leaf.until_ms = self._clock_ms() + step.value
            return False
        if isinstance(step, AnyOrder):
            place = f"{leaf.shown}, branch"
            leaf.branches = [
                _Track(branch, f"{place} {number}, step", leaf) for number, branch in enumerate(step.branches, 1)
            ]
            return True
        leaf.at += 1
        self._do(leaf, step)
        return True

    def _do(self, leaf: _Track, step: Step) -> None:
        process = self._process
        if isinstance(step, Send):
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": step.method}
            if step.kind == "request":
                self._requests += 1
                leaf.told = f"script-{self._requests}" if step.id is None else filled_in(step.id, self._captures)
                message["id"] = leaf.told
            if step.params is not None:
                message["params"] = filled_in(step.params, self._captures)
            process.send(message)
        elif isinstance(step, Answer):
            message_id = leaf.asked if step.id is None else filled_in(step.id, self._captures)
            process.send({"jsonrpc": "2.0", "id": message_id, step.kind: filled_in(step.value, self._captures)})
        elif isinstance(step, Act):
            self._act(process, step)

    def _act(self, process: ScriptedProcess, step: Act) -> None:
        if step.kind == "write":
            process.send_bytes(step.value)
        elif step.kind == "complain":
            process.send_stderr(f"{step.value}\n".encode())
        elif step.kind == "close_output":
            process.close_stdout()
        elif step.kind == "stop_reading":
            process.reading = False
        elif step.kind == "end":
            process.exit(step.value)

    def _passes_by(self, message: dict[str, Any]) -> bool:
        """Whether the script says nothing about ``message``, so that it may be handled without it."""
        method = message.get("method")
        if method is None:
            # The answer to a request whose answer no step waits for. A refusal is never what was meant.
            return "error" not in message
        if method in self.script.mentioned:
            return False
        return method in _AUTOMATIC or "id" not in message

    def _mismatch(self, message: dict[str, Any], differences: list[tuple[_Track, list[str]]]) -> str:
        lines = [f"the script of {self.name} did not expect what came:", f"    {_what(message)}"]
        if self.played:
            lines.append(f"it is at its end; if this belongs to it, add {_suggestion(message)}")
        elif not differences:
            lines.append("it expects nothing now:")
            lines += [f"    {leaf.shown}: {leaf.step}" for leaf in self._track.leaves()]
        for leaf, found in differences:
            lines.append(f"expected at {leaf.shown}:")
            lines.append(f"    {cut(str(leaf.step), _MESSAGE_COLUMNS)}")
            lines.append("the difference:")
            lines += [f"    {cut(problem, _MESSAGE_COLUMNS)}" for problem in found]
        later = self._later(message)
        if later is not None:
            lines.append("it is expected later; was a message left out, or do they come in any_order(...)?")
            lines.append(f"    {later}")
        lines.append("the exchange so far:")
        return "\n".join([*lines, render(self.exchange)])

    def _later(self, message: dict[str, Any]) -> str | None:
        for leaf in self._track.leaves():
            for index in range(leaf.at + 1, len(leaf.steps)):
                step = leaf.steps[index]
                if isinstance(step, Expect) and step.method == message.get("method"):
                    probe = _Track(leaf.steps, leaf.place)
                    probe.at = index
                    if not list(self._problems(probe, message, dict(self._captures))):
                        return f"{probe.shown}: {step}"
        return None


def _join(track: _Track) -> bool:
    """Let tracks whose branches are all at their end go on; whether any does."""
    joined = [_join(branch) for branch in track.branches]
    if track.branches and all(branch.step is None for branch in track.branches):
        track.branches = []
        track.at += 1
        return True
    return any(joined)


def _what(message: Any) -> str:
    what, payload, message_id = read_message(message)
    word = what if message_id is None else f"{what} #{message_id}"
    return f"{word} {brief(payload, _MESSAGE_COLUMNS - len(word))}".rstrip()


def _suggestion(message: dict[str, Any]) -> str:
    if "method" not in message:
        return "expect_result()" if "result" in message else "expect_error()"
    return f"expect({message['method']!r})"


# -- a script as a process ---------------------------------------------------------------------------------------------


class Player(ScriptedProcess):
    """What of a scripted process is different when it plays a script; stands before the class it is laid over."""

    run: ScriptRun

    def send(self, message: Any) -> None:
        """Write one message, and note it in the run."""
        self.run.note(message, heard=False)
        super().send(message)

    def on_message(self, message: Any) -> None:
        """Play what ``message`` sets off; one that the script leaves alone is answered as without it."""
        if not self.run.hear(message):
            super().on_message(message)
            self.run.after(message)

    def next_deadline(self) -> int | None:
        """The monotonic millisecond at which the script goes on; None while it waits for no time."""
        return self.run.next_deadline()

    def tick(self, now_ms: int) -> None:
        """Go on with what waited for ``now_ms``."""
        self.run.tick(now_ms)


class OctetPlayer(Player, ScriptedExtension):
    """Plays a script of API 0.3."""


class FeaturePlayer(Player, ScriptedFeatureExtension):
    """Plays a script of API 0.1, 0.2 or 0.4."""


class ServerPlayer(Player, ScriptedServer):
    """Plays a script of an MCP server."""


def player_of(script: Script, name: str, link: ProcessLink | None = None) -> Player:
    """A process that plays ``script`` from its beginning. Raises :class:`UsageError` for options that do not fit."""
    player: Player
    try:
        if script.version == "mcp":
            player = ServerPlayer(**script.options)
        elif script.version == "0.3":
            player = OctetPlayer(**script.options)
        else:
            player = FeaturePlayer(version=script.version, **script.options)
    except TypeError as error:
        raise UsageError(f"the script of {name} has options that {script.version} has not: {error}") from error
    player.run = ScriptRun(script, player, name, link)
    return player


@process_of.register
def _(thing: Script, *, name: str | None = None, **fields: Any) -> ProcessPlan:
    name = name or thing.name
    if name is None:
        raise UsageError("a script has no name of its own; give one: add(script, name='...')", path="name")
    probe = player_of(thing, name)
    return ProcessPlan(lambda link: player_of(thing, link.name, link), process_of(probe, name=name, **fields).member)
