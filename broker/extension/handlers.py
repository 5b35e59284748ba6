"""The functions an author wrote, checked where they are decorated."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from attrs import field, frozen

from broker.errors import UsageError
from broker.extension.context import Context
from broker.extension.logs import describe_callable
from broker.wire.octet.catalogue import tool_faults
from broker.wire.octet.migration_models import MigrationDetectParams, MigrationImportParams
from broker.wire.octet.models import SessionEnd, SessionStart, ToolDefinition
from broker.wire.octet.stream_models import ProviderStreamRequest
from broker.wire.signature import Signature

_GETS: Final[dict[str, Any]] = {
    "session_start": SessionStart,
    "session_end": SessionEnd,
    "migration/detect": MigrationDetectParams,
    "migration/import": MigrationImportParams,
    "provider/stream": ProviderStreamRequest,
}


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
        return describe_callable(self.function)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of ``function`` gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def name_of(what: str, function: Any, given: str | None) -> str:
    """The name a decorated function gets; raises :class:`~broker.errors.UsageError` for what is no such function."""
    if isinstance(function, str):
        raise UsageError(f'{what} takes the name by its keyword: {what}(name="{function}")')
    if not callable(function):
        raise UsageError(f"{what} decorates a function, not {type(function).__name__}")
    if given is not None and (not isinstance(given, str) or not given):
        raise UsageError(f"{what}: a name is a text that is not empty, not {given!a:.80}")
    name = getattr(function, "__name__", None) if given is None else given
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


def read_tool(
    name: str, function: Callable[..., Any], timeout_ms: int | None, truncate: bool
) -> tuple[ToolDefinition, Handler]:
    """The tool that a typed function is; raises :class:`~broker.errors.UsageError` for one that can be none."""
    if timeout_ms is not None and (type(timeout_ms) is not int or timeout_ms < 1):
        raise UsageError(f'tool "{name}": timeout_ms is at least 1, not {timeout_ms!a:.80}', path=name)
    description = description_of(f"tool {name}", function)
    signature = Signature.of(function, Context)
    tool = ToolDefinition(name=name, description=description, parameters=signature.schema())
    if faults := tool_faults([tool]):
        problems = "; ".join(f"{fault.path.removeprefix('tools[0].')}: {fault.problem}" for fault in faults)
        raise UsageError(f"tool {name}: {problems}", path=name, faults=faults)
    return tool, Handler(
        function,
        is_async(function),
        context=signature.context,
        signature=signature,
        timeout_ms=timeout_ms,
        truncate=truncate,
    )


def stream_handler(what: str, function: Callable[..., Any], uses: tuple[str, ...]) -> Handler:
    """The handler of a provider's streams; wrong use raises :class:`~broker.errors.UsageError`."""
    if not inspect.isasyncgenfunction(function):
        raise UsageError(f"{what}: {describe_callable(function)} must be an async generator, with yield")
    if missing := [name for name in ("provider_catalog", "provider_stream") if name not in uses]:
        raise UsageError(f"{what} needs Extension(..., uses={missing})")
    hints = _hints_of(function)
    for parameter in list(inspect.signature(function).parameters)[:1]:
        _check_annotation(what, function, parameter, hints.get(parameter, Any), gets_of("provider/stream"))
    return Handler(function, is_async=True, takes=True)


def background_handler(what: str, function: Callable[..., Any]) -> Handler:
    """The handler of what runs beside everything else; wrong use raises :class:`~broker.errors.UsageError`."""
    if not is_async(function):
        raise UsageError(f"{what}: {describe_callable(function)} must be async, for it is cancelled at the end")
    return Handler(function, is_async=True)


def gets_of(what: str) -> Any:
    """The type of what the handler of a hook or method gets: its record, or plain JSON."""
    return _GETS.get(what, dict[str, Any])


def plain_handler(
    what: str, function: Callable[..., Any], argument: str, expected: Any = Any, *, optional: bool = False
) -> Handler:
    """A handler of one positional ``argument`` (which it may leave out if ``optional``) and perhaps a context.

    ``expected`` is the type of what it gets, which the parameter's annotation has to admit if there is one.
    """
    if not callable(function):
        raise UsageError(f"{what} decorates a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{what}: {describe_callable(function)} is a generator, write a function that returns")
    hints = _hints_of(function)
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
    if wanted:
        _check_annotation(what, function, wanted[0].name, hints.get(wanted[0].name, Any), expected)
    return Handler(function, is_async(function), takes=bool(wanted), context=tuple(contexts))


def admits(hint: Any, given: Any) -> bool:
    """Whether a parameter annotated with ``hint`` may get a ``given``, as far as that can be told without a checker."""
    if hint in (Any, object) or given is Any:
        return True
    origin, base = typing.get_origin(hint) or hint, typing.get_origin(given) or given
    if origin in (typing.Union, types.UnionType):
        return any(admits(option, given) for option in typing.get_args(hint))
    if typing.is_typeddict(origin):
        return base is dict
    try:
        if not issubclass(base, origin):
            return False
    except TypeError:
        return True  # a type variable, a literal, a new type, a protocol: the author knows
    mine, theirs = typing.get_args(hint), typing.get_args(given)
    return len(mine) != len(theirs) or all(map(admits, mine, theirs))


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return {}  # a name that is not there yet is the author's own affair


def _check_annotation(what: str, function: Callable[..., Any], parameter: str, hint: Any, expected: Any) -> None:
    if admits(hint, expected):
        return
    name = getattr(function, "__name__", "it")
    kind = typing.get_origin(expected) or expected
    members = [member.name for member in getattr(kind, "__attrs_attrs__", ())]
    same = typing.get_origin(hint) is kind
    about = f", with {', '.join(members)}" if members and not same else ""
    is_plain = not is_async(function) and not inspect.isasyncgenfunction(function)
    fix = f"{'' if is_plain else 'async '}def {name}({parameter}: {_shown(expected)})"
    if same and what == "@app.on":
        fix += f', or have it read as that: @app.on("bus....", {_shown(typing.get_args(hint)[0])})'
    raise UsageError(
        f"{what}: {name} gets {_shown(expected)}{about}, and its parameter {parameter} is annotated "
        f"with {_shown(hint)}; write {fix}",
        path=parameter,
    )


def _shown(hint: Any) -> str:
    """A type as an author writes it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(origin, type) and arguments and origin is not types.UnionType:
        return f"{origin.__name__}[{', '.join(map(_shown, arguments))}]"
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
