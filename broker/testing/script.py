"""Scripted peers: what an extension expects of the host and what it sends, step by step.

A script is a list of steps in the order they are to happen. What it says nothing about is done as a good extension
does it: the handshake, ``shutdown``, ``ping``. A message that no step expects at its moment is a failure that shows
both, the difference, and the exchange so far. A script that cannot be played is refused when it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from broker.errors import UsageError
from broker.testing.matching import capture as capture  # noqa: PLC0414 - of this module as well, to type checkers
from broker.testing.matching import captured as captured  # noqa: PLC0414
from broker.testing.matching import names_in
from broker.testing.sequence import cut
from broker.wire.feature.methods import METHODS as FEATURE_METHODS
from broker.wire.octet.contract import METHODS as OCTET_METHODS

Version: TypeAlias = Literal["0.1", "0.2", "0.3", "0.4", "mcp"]
VERSIONS: Final[tuple[Version, ...]] = ("0.1", "0.2", "0.3", "0.4", "mcp")


class Step:
    """One step of a script. Made by the functions of this module."""


@frozen
class Expect(Step):
    """The host sends a request or notification. See :func:`expect`."""

    method: str
    params: Any = ...
    id: Any = ...

    def __str__(self) -> str:
        parts = [repr(self.method)]
        parts += [_shown(self.params)] if self.params is not ... else []
        parts += [f"id={self.id!r}"] if self.id is not ... else []
        return f"expect({', '.join(parts)})"


@frozen
class ExpectAnswer(Step):
    """The host answers a request of the script. See :func:`expect_result` and :func:`expect_error`."""

    kind: Literal["result", "error"]
    value: Any = ...
    id: Any = None

    def __str__(self) -> str:
        return f"expect_{self.kind}({'' if self.value is ... else _shown(self.value)})"


@frozen
class Send(Step):
    """The script sends a request or a notification. See :func:`request` and :func:`notify`."""

    kind: Literal["request", "notify"]
    method: str
    params: Any = None
    id: Any = None

    def __str__(self) -> str:
        return f"{self.kind}({self.method!r}{'' if self.params is None else ', ' + _shown(self.params)})"


@frozen
class Answer(Step):
    """The script answers a request of the host. See :func:`answer` and :func:`refuse`."""

    kind: Literal["result", "error"]
    value: Any
    id: Any = None

    def __str__(self) -> str:
        return f"{'answer' if self.kind == 'result' else 'refuse'}({_shown(self.value)})"


@frozen
class Act(Step):
    """The script does something that is no message: ``write``, ``complain``, ``wait``, ``close_output``, ``end``."""

    kind: Literal["write", "complain", "wait", "close_output", "stop_reading", "end"]
    value: Any = None

    def __str__(self) -> str:
        return f"{self.kind}({'' if self.value is None else repr(self.value)})"


@frozen
class AnyOrder(Step):
    """Several lists of steps that are played beside each other. See :func:`any_order`."""

    branches: tuple[tuple[Step, ...], ...]

    def __str__(self) -> str:
        return f"any_order({len(self.branches)} branches)"


def expect(method: str, params: Any = ..., *, id: Any = ...) -> Expect:  # noqa: A002 - what the wires call it
    """Wait for a request or notification of the host.

    ``params`` are matched as :mod:`broker.testing.matching` says: an object needs to have at least these members.
    ``expect("tool/call", {"name": "work"}, id=capture("call"))``
    """
    return Expect(method, params, id)


def expect_result(value: Any = ..., *, id: Any = None) -> ExpectAnswer:  # noqa: A002
    """Wait for the result of the last :func:`request`, or of the one whose id is ``id``."""
    return ExpectAnswer("result", value, id)


def expect_error(value: Any = ..., *, id: Any = None) -> ExpectAnswer:  # noqa: A002
    """Wait for the error that answers the last :func:`request`, such as ``{"code": -32011}``."""
    return ExpectAnswer("error", value, id)


def request(method: str, params: Any = None, *, id: Any = None) -> Send:  # noqa: A002
    """Ask the host. ``captured(name)`` in ``params`` stands for what was captured; ``id`` is made up if left out."""
    return Send("request", method, params, id)


def notify(method: str, params: Any = None) -> Send:
    """Tell the host something that is not answered."""
    return Send("notify", method, params)


def answer(result: Any, *, id: Any = None) -> Answer:  # noqa: A002
    """Answer the request that was expected last, or the one whose id is ``id`` (a :func:`captured` one)."""
    return Answer("result", result, id)


def refuse(code: int, message: str, *, data: Any = None, id: Any = None) -> Answer:  # noqa: A002
    """Answer the request that was expected last with an error."""
    error = {"code": code, "message": message}
    return Answer("error", error if data is None else {**error, "data": data}, id)


def write(data: bytes) -> Act:
    """Write raw bytes, right or wrong ones."""
    return Act("write", data)


def complain(text: str) -> Act:
    """Write a line to stderr."""
    return Act("complain", text)


def wait(milliseconds: int) -> Act:
    """Do nothing for so long, by the clock of the test. What comes meanwhile and is not expected is a failure."""
    return Act("wait", milliseconds)


def close_output() -> Act:
    """Close the output without exiting."""
    return Act("close_output")


def stop_reading() -> Act:
    """Read nothing any more."""
    return Act("stop_reading")


def end(status: int = 0) -> Act:
    """End the process; a negative status is a signal."""
    return Act("end", status)


def any_order(*branches: Step | Sequence[Step]) -> AnyOrder:
    """Play each of ``branches`` (a step, or a list of them, the first an ``expect``) whenever its messages come.

    The script goes on when all of them are at their end.
    """
    return AnyOrder(tuple((branch,) if isinstance(branch, Step) else tuple(branch) for branch in branches))


@frozen(init=False, eq=False)
class Script:
    """What a scripted peer expects and sends. It can be added to a session like an extension, and played many times.

    ``version`` is the API it speaks, ``mcp`` for a server; ``options`` are those of
    :class:`~broker.testing.ScriptedExtension`, :class:`~broker.testing.ScriptedFeatureExtension` or
    :class:`~broker.testing.ScriptedServer`, which does what the script does not mention.

    Raises :class:`~broker.errors.UsageError` for steps that cannot be played, with all that is wrong with them.
    """

    steps: tuple[Step, ...]
    name: str | None
    version: Version
    options: Mapping[str, Any] = field(factory=dict)

    def __init__(self, *steps: Step, name: str | None = None, version: Version = "0.3", **options: Any) -> None:
        if version not in VERSIONS:
            raise UsageError(f"version: expected one of {', '.join(VERSIONS)}, got {version!a:.80}", path="version")
        faults = list(_Check(version).steps(steps))
        if faults:
            raise UsageError("this script cannot be played:\n" + "\n".join(f"  {fault}" for fault in faults))
        self.__attrs_init__(steps, name, version, options)

    @property
    def mentioned(self) -> frozenset[str]:
        """The methods that it expects somewhere."""
        return frozenset(step.method for step in every_step(self.steps) if isinstance(step, Expect))


def every_step(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps and those inside their branches."""
    for step in steps:
        yield step
        if isinstance(step, AnyOrder):
            for branch in step.branches:
                yield from every_step(branch)


# -- what can be wrong with a script -----------------------------------------------------------------------------------

_MCP_HOST: Final = {
    "initialize": True,
    "ping": True,
    "tools/list": True,
    "tools/call": True,
    "notifications/initialized": False,
    "notifications/cancelled": False,
}


class _Check:
    """Goes through a script as it would be played."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._captured: set[str] = set()
        if version == "mcp":
            self._expected = dict(_MCP_HOST)
            self._sent: set[str] | None = None  # servers have extensions of their own
        elif version == "0.3":
            self._expected = {row.name: not row.notification for row in OCTET_METHODS.values() if row.from_host}
            self._sent = {row.name for row in OCTET_METHODS.values() if row.from_extension}
        else:
            rows = FEATURE_METHODS.values()
            self._expected = {row.name: not row.notification for row in rows if row.from_host}
            self._sent = {row.name for row in rows if row.from_extension}

    def steps(
        self, steps: Sequence[Any], where: str = "step", *, asked: bool = False, told: bool = False
    ) -> Iterator[str]:
        """What is wrong, one line each; a request of the host is open if ``asked``, one of the script's if ``told``."""
        ended = False
        for number, step in enumerate(steps, 1):
            at = f"{where} {number}"
            if ended:
                yield f"{at}, {step}: comes after end() and is never reached; move it before that, or leave it out"
                return
            if not isinstance(step, Step):
                yield f"{at}: {step!a:.80} is no step; use expect(), request(), answer() and the like"
                continue
            yield from (f"{at}, {step}: {problem}" for problem in self._uses(step))
            if isinstance(step, Expect):
                if (problem := self._unexpectable(step.method)) is not None:
                    yield f"{at}: {problem}"
                asked = self._expected.get(step.method, True) or asked
            elif isinstance(step, Send):
                if (problem := self._unsendable(step)) is not None:
                    yield f"{at}: {problem}"
                told = told or step.kind == "request"
            elif isinstance(step, Answer) and step.id is None:
                if not asked:
                    yield f"{at}, {step}: there is no request to answer; put expect('tool/call') or the like before it"
                asked = False
            elif isinstance(step, ExpectAnswer) and step.id is None:
                if not told:
                    yield f"{at}, {step}: nothing was asked; put request(method, params) before it"
                told = False
            elif isinstance(step, AnyOrder):
                yield from self._branches(step, at, asked, told)
            elif isinstance(step, Act):
                ended = step.kind == "end"
                if step.kind == "wait" and (type(step.value) is not int or step.value < 0):
                    yield f"{at}, {step}: expected a whole number of milliseconds"

    def _branches(self, step: AnyOrder, at: str, asked: bool, told: bool) -> Iterator[str]:
        if len(step.branches) < 2:
            yield f"{at}: any_order() of one branch is just its steps; leave it out, or give it more branches"
        before, after = set(self._captured), set(self._captured)
        for number, branch in enumerate(step.branches, 1):
            self._captured = set(before)  # what another branch captures may come later
            if not branch or not isinstance(branch[0], Expect | ExpectAnswer):
                yield f"{at}, branch {number}: has to begin with expect(), which decides when it is played"
            yield from self.steps(branch, f"{at}, branch {number}, step", asked=asked, told=told)
            after |= self._captured
        self._captured = after

    def _uses(self, step: Step) -> Iterator[str]:
        values = [getattr(step, name, None) for name in ("params", "value", "id")]
        for value in values:
            for name in names_in(value, captured):
                if name not in self._captured:
                    known = ", ".join(sorted(self._captured)) or "nothing"
                    yield f"{name!r} is not captured before ({known} is); put capture({name!r}) in an earlier step"
        for value in values:
            self._captured.update(names_in(value, capture))

    def _unexpectable(self, method: str) -> str | None:
        if method not in self._expected and method in (self._sent or ()):
            return f"it is the extension that sends {method!r}; use request({method!r}, ...)"
        return self._unknown(method, self._expected, "the host sends no")

    def _unsendable(self, step: Send) -> str | None:
        if self._sent is None:
            return None
        if step.method not in self._sent and step.method in self._expected:
            return f"it is the host that sends {step.method!r}; use expect({step.method!r})"
        return self._unknown(step.method, self._sent, "an extension sends no")

    def _unknown(self, method: str, known: Any, what: str) -> str | None:
        if method in known or any(row.endswith("*") and method.startswith(row[:-1]) for row in known):
            return None
        near = get_close_matches(method, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
        return f"{what} {method!r} in {self._version}; {hint}"


def _shown(value: Any) -> str:
    return cut(repr(value), 120)
