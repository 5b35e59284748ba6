"""The functions an author wrote, checked where they are decorated."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from broker.errors import UsageError
from broker.extension.context import Context
from broker.wire.signature import Signature


@frozen(eq=False)
class Handler:
    """A function, how it is called, and its bounds. ``takes`` says whether it wants the one positional argument."""

    function: Callable[..., Any]
    is_async: bool
    takes: bool = False
    context: tuple[str, ...] = ()
    signature: Signature | None = None
    timeout_ms: int | None = None
    truncate: bool = False
    extra: Any = field(default=None)

    @property
    def name(self) -> str:
        """The function's name, for logs."""
        return getattr(self.function, "__name__", repr(self.function))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of ``function`` gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def name_of(what: str, function: Any, given: str | None) -> str:
    """The name a decorated function gets; raises :class:`~broker.errors.UsageError` for what is no such function."""
    if isinstance(function, str):
        raise UsageError(f'{what} takes the name by its keyword: {what}(name="{function}")')
    if not callable(function):
        raise UsageError(f"{what} decorates a function, not {type(function).__name__}")
    name = given or getattr(function, "__name__", None)
    if name is None:
        raise UsageError(f'{what}: {type(function).__name__} has no name; give one, {what}(name="...")')
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{what}: {name} is a generator; return a list instead", path=name)
    return str(name)


def check_given(what: str, name: Any, example: str) -> None:
    """Raise :class:`~broker.errors.UsageError` for a decorator that was put above a function without its name."""
    if not isinstance(name, str):
        raise UsageError(f'{what} takes a name, not {type(name).__name__}; write {what}("{example}") above it')


def description_of(what: str, function: Callable[..., Any]) -> str:
    """The docstring, which is what models or people read; wrong use raises :class:`~broker.errors.UsageError`."""
    description = inspect.cleandoc(function.__doc__ or "")
    if not description:
        raise UsageError(f'{what} needs a docstring, which becomes its description: """Says what it does."""')
    return description


def plain_handler(what: str, function: Callable[..., Any], argument: str, *, optional: bool = False) -> Handler:
    """A handler of one positional ``argument`` (which it may leave out if ``optional``) and perhaps a context."""
    if not callable(function):
        raise UsageError(f"{what} decorates a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{what}: {function.__name__} is a generator, write a function that returns")
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        hints = {}  # only the context is looked for; a name that is not there yet is the author's own affair
    contexts = []
    positional = []
    for parameter in inspect.signature(function).parameters.values():
        if hints.get(parameter.name) is Context or parameter.annotation in ("Context", Context):
            contexts.append(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            positional.append(parameter)
    wanted = [parameter for parameter in positional if parameter.kind is not parameter.KEYWORD_ONLY]
    if len(positional) != len(wanted) or len(wanted) > 1 or (not wanted and not optional):
        may = "may take" if optional else "takes"
        name = getattr(function, "__name__", "it")
        raise UsageError(f"{what}: {name} {may} one argument, {argument}; write def {name}({argument})")
    return Handler(function, is_async(function), takes=bool(wanted), context=tuple(contexts))
