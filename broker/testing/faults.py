"""Faults on purpose: which, in whom, and at which moment, written down before the test and the same every time.

A plan of faults prints as the call that makes it again. What it leaves open (the moment, the bytes of garbage, where to
split) is drawn from its seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from broker.errors import UsageError
from broker.testing.memory_process import Direction, Frame, MemoryProcess, Pipe

FaultKind: TypeAlias = Literal["kill", "stall", "drop_pipe", "garbage", "slow_reader", "split", "clock_jump", "suspend"]

# The moment of a fault whose plan does not say: one of the frames after the handshake, early enough to come.
_FIRST_FRAME: Final = 2
_LAST_FRAME: Final = 6
_GARBAGE_BYTES: Final = 32


@frozen
class When:
    """A moment: ``at_ms`` virtual milliseconds after the host was made, or the ``nth`` frame of one direction.

    ``method`` counts frames of that method alone. Made with :func:`at`, :func:`heard` and :func:`sent`.
    """

    at_ms: int | None = None
    direction: Direction | None = None
    nth: int = 1
    method: str | None = None

    def __repr__(self) -> str:
        if self.direction is None:
            return f"at({self.at_ms})"
        given = [repr(self.nth)] if self.method is None else [repr(self.method)] + [repr(self.nth)] * (self.nth != 1)
        return f"{self.direction}({', '.join(given)})"


def at(ms: int) -> When:
    """``ms`` virtual milliseconds after the host was made, or once the process runs if that is later."""
    _whole("at", ms, 0)
    return When(at_ms=ms)


def heard(what: int | str = 1, nth: int = 1) -> When:
    """When the process has read its ``nth`` frame, or the ``nth`` of a method, and has not yet acted on it.

    >>> from broker.testing import heard
    >>> heard(3), heard("tool/call", 2)
    (heard(3), heard('tool/call', 2))
    """
    return _frame("heard", what, nth)


def sent(what: int | str = 1, nth: int = 1) -> When:
    """When the host has the ``nth`` frame that the process wrote, or the ``nth`` of a method."""
    return _frame("sent", what, nth)


@frozen
class Fault:
    """One fault: ``kind`` happens to ``extension`` (empty: to the machine's clocks) at the moment ``when``.

    It happens to generation ``generation`` alone; None is every one. ``options`` are those of the method of
    :class:`Faults` that is called like its kind.
    """

    kind: FaultKind
    extension: str
    when: When
    generation: int | None = 1
    options: dict[str, Any] = field(factory=dict)

    def __str__(self) -> str:
        parts = [repr(self.extension)] if self.extension else []
        parts += [f"{key}={value!r}" for key, value in self.options.items()]
        parts.append(f"when={self.when!r}")
        if self.extension and self.generation != 1:
            parts.append(f"generation={self.generation!r}")
        return f"{self.kind}({', '.join(parts)})"


class Faults:
    """A plan of faults, made by calling its methods one after another; it prints as the code that makes it.

    >>> from broker.testing import Faults, heard
    >>> Faults(seed=7).kill("collector", when=heard("bus/event", 2)).stall("publisher", for_ms=500)
    Faults(7).kill('collector', when=heard('bus/event', 2)).stall('publisher', for_ms=500, when=heard(4))

    A plan can be used for many runs; each starts it anew.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed: int = seed
        self.faults: tuple[Fault, ...] = ()
        self._random = random.Random(f"faults {seed}")  # noqa: S311 - decides what breaks, protects nothing

    def kill(self, extension: str, *, when: When | None = None, generation: int | None = 1) -> Faults:
        """End the process by SIGKILL; what it had not written is lost."""
        return self._add("kill", extension, when, generation)

    def stall(
        self, extension: str, *, for_ms: int | None = None, when: When | None = None, generation: int | None = 1
    ) -> Faults:
        """Stop the process from reading and writing, for ever or for so many milliseconds, as SIGSTOP does."""
        options = {} if for_ms is None else {"for_ms": _whole("for_ms", for_ms, 1)}
        return self._add("stall", extension, when, generation, **options)

    def drop_pipe(
        self, extension: str, *, which: Pipe = "both", when: When | None = None, generation: int | None = 1
    ) -> Faults:
        """Have the process close its ``input``, its ``output`` or both, without ending."""
        if which not in ("input", "output", "both"):
            raise UsageError(f"which: expected 'input', 'output' or 'both', got {which!a:.80}", path="which")
        return self._add("drop_pipe", extension, when, generation, which=which)

    def garbage(
        self, extension: str, *, data: bytes | None = None, when: When | None = None, generation: int | None = 1
    ) -> Faults:
        """Have the process write bytes that are no frame; drawn from the seed when ``data`` is left out."""
        drawn = bytes(self._draw(33, 127) for _ in range(_GARBAGE_BYTES)) + b"\n"
        return self._add("garbage", extension, when, generation, data=drawn if data is None else data)

    def slow_reader(
        self, extension: str, *, every_ms: int, when: When | None = None, generation: int | None = 1
    ) -> Faults:
        """Have the process read one frame in ``every_ms`` milliseconds from then on."""
        return self._add("slow_reader", extension, when, generation, every_ms=_whole("every_ms", every_ms, 1))

    def split(
        self, extension: str, *, size: int | None = None, when: When | None = None, generation: int | None = 1
    ) -> Faults:
        """Have all bytes from and to the process come in pieces of ``size`` bytes; drawn anew for each if left out."""
        options = {} if size is None else {"size": _whole("size", size, 1)}
        return self._add("split", extension, when or heard(1), generation, **options)

    def clock_jump(self, milliseconds: int, *, when: When) -> Faults:
        """Set the wall clock forwards or back; no time passes. ``when`` is :func:`at`."""
        return self._add("clock_jump", "", when, None, milliseconds=milliseconds)

    def suspend(self, milliseconds: int, *, when: When) -> Faults:
        """Let time pass at which nothing runs, as in a machine that sleeps: every deadline in it is found late."""
        return self._add("suspend", "", when, None, milliseconds=_whole("milliseconds", milliseconds, 1))

    def any_of(self, extensions: Sequence[str], *, count: int = 1) -> Faults:
        """Add ``count`` faults of any kind that befalls a process, each in one of ``extensions``, all drawn."""
        if isinstance(extensions, str) or not extensions:
            raise UsageError(f"any_of: expected a list of names, got {extensions!a:.80}", path="extensions")
        for _ in range(count):
            name = extensions[self._draw(0, len(extensions))]
            make: tuple[Callable[[], Faults], ...] = (
                lambda: self.kill(name),  # noqa: B023 - called in this round
                lambda: self.stall(name, for_ms=self._draw(1, 20) * 500),  # noqa: B023
                lambda: self.drop_pipe(name),  # noqa: B023
                lambda: self.garbage(name),  # noqa: B023
                lambda: self.slow_reader(name, every_ms=self._draw(1, 10) * 50),  # noqa: B023
                lambda: self.split(name),  # noqa: B023
            )
            make[self._draw(0, len(make))]()
        return self

    def arm(self, now_ms: int) -> ArmedFaults:
        """The plan at its beginning, for one run that starts at the monotonic millisecond ``now_ms``."""
        return ArmedFaults(self, now_ms)

    def __repr__(self) -> str:
        return "".join([f"Faults({self.seed})", *(f".{fault}" for fault in self.faults)])

    def _add(
        self, kind: FaultKind, extension: str, when: When | None, generation: int | None, **options: Any
    ) -> Faults:
        if when is None:
            when = heard(self._draw(_FIRST_FRAME, _LAST_FRAME + 1))
        if not isinstance(when, When):
            raise UsageError(f"when: expected at(ms), heard(n) or sent(n), got {when!a:.80}", path="when")
        if not extension and when.at_ms is None:
            raise UsageError(f"{kind}: a clock hears no frames; give when=at(ms)", path="when")
        self.faults = (*self.faults, Fault(kind, extension, when, generation, options))
        return self

    def _draw(self, low: int, high: int) -> int:
        """A whole number from ``low`` to below ``high``; the same in every Python."""
        return low + int(self._random.random() * (high - low))


def faults_of(given: Fault | Faults) -> tuple[Fault, ...]:
    """What ``inject`` was given, one by one; raises :class:`UsageError` for anything that is no fault."""
    if isinstance(given, Faults):
        return given.faults
    if not isinstance(given, Fault):
        raise UsageError(f"expected a fault, such as Faults().kill('name'), got {given!a:.80}", path="fault")
    return (given,)


class ArmedFaults:
    """A plan on its way through one run: what is still to come, and when."""

    def __init__(self, plan: Faults, now_ms: int) -> None:
        self.plan: Faults = plan
        self._began_ms = now_ms
        self._timed = [fault for fault in plan.faults if fault.when.at_ms is not None]
        self._framed = [fault for fault in plan.faults if fault.when.at_ms is None]
        self._counts: dict[tuple[str, int, Direction, str | None], int] = {}

    @property
    def to_come(self) -> tuple[Fault, ...]:
        """The faults whose moment has not come; those of every generation are never through."""
        return (*self._timed, *self._framed)

    def passed(self, frame: Frame) -> Iterator[Fault]:
        """The faults whose moment this frame is."""
        if not self._framed:
            return
        method = None if frame.message is None else frame.message.get("method")
        name, number = frame.link.name, frame.link.number
        for word in {None, method}:
            key = (name, number, frame.direction, word)
            count = self._counts[key] = self._counts.get(key, 0) + 1
            for fault in list(self._framed):
                when = fault.when
                if (
                    fault.extension == name
                    and fault.generation in (None, number)
                    and (when.direction, when.method, when.nth) == (frame.direction, word, count)
                ):
                    if fault.generation is not None:
                        self._framed.remove(fault)
                    yield fault

    def due(self, now_ms: int) -> tuple[Fault, ...]:
        """The faults whose time has come and that have not been :meth:`taken`."""
        return tuple(fault for fault in self._timed if self._began_ms + (fault.when.at_ms or 0) <= now_ms)

    def taken(self, fault: Fault) -> None:
        """One that came by time has struck."""
        self._timed.remove(fault)

    def next_deadline(self, now_ms: int) -> int | None:
        """The monotonic millisecond after ``now_ms`` of the next fault that comes by time."""
        due = (self._began_ms + (fault.when.at_ms or 0) for fault in self._timed)
        return min((moment for moment in due if moment > now_ms), default=None)


def strike(fault: Fault, process: MemoryProcess, seed: int) -> None:
    """Have ``fault`` happen to ``process``."""
    options = fault.options
    if fault.kind == "kill":
        process.kill()
    elif fault.kind == "stall":
        process.stall(options.get("for_ms"))
    elif fault.kind == "drop_pipe":
        process.drop_pipe(options["which"])
    elif fault.kind == "garbage":
        process.garble(options["data"])
    elif fault.kind == "slow_reader":
        process.slow_down(options["every_ms"])
    elif fault.kind == "split":
        process.split(_pieces(options.get("size"), f"split {seed} {process.label}"))
    else:
        raise AssertionError(f"{fault.kind} is no fault of a process")


def _pieces(size: int | None, seed: str) -> Callable[[int], int]:
    if size is not None:
        return lambda left: min(size, left)
    draw = random.Random(seed)  # noqa: S311 - decides where to split, protects nothing
    return lambda left: 1 + int(draw.random() * left)


def _frame(direction: Direction, what: int | str, nth: int) -> When:
    if isinstance(what, str):
        return When(direction=direction, nth=_whole("nth", nth, 1), method=what)
    return When(direction=direction, nth=_whole("the number of a frame", what, 1))


def _whole(what: str, value: Any, minimum: int) -> int:
    if type(value) is not int or value < minimum:
        raise UsageError(f"{what}: expected a whole number from {minimum}, got {value!a:.80}", path=what)
    return value
