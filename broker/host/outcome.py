"""The result of something that takes time, without a loop: drivers turn it into a future or wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from broker.errors import BrokerError, InternalError, UsageError
from broker.wire.quoting import describe, escape

T = TypeVar("T")


class Outcome(Generic[T]):
    """Settles exactly once, with a value or an error; later settlements are ignored. Callbacks run where it settles."""

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BrokerError | None = None
        self._callbacks: list[Callable[[Outcome[T]], Any]] = []

    @property
    def done(self) -> bool:
        """Whether it settled."""
        return self._done

    @property
    def error(self) -> BrokerError | None:
        """What it failed with; None when it succeeded or is still open."""
        return self._error

    def result(self) -> T:
        """The value; raises the error it failed with, or :class:`UsageError` while it is open."""
        if not self._done:
            raise UsageError("not settled yet; wait for it through a driver, or add a callback")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def add_callback(self, callback: Callable[[Outcome[T]], Any]) -> None:
        """Call ``callback(outcome)`` once it settles; at once if it has."""
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def succeed(self, value: T) -> None:
        """Settle with a value."""
        self._settle(value, None)

    def fail(self, error: BrokerError) -> None:
        """Settle with an error."""
        self._settle(None, error)

    def settle_with(self, work: Callable[[], T]) -> None:
        """Settle with what ``work`` returns or raises; an error that is none of broker's becomes an internal one."""
        try:
            value = work()
        except BaseException as error:
            # SystemExit or a cancellation as well: whoever waits for the outcome would wait for ever.
            self.fail(as_broker_error(error))
            if isinstance(error, KeyboardInterrupt):
                raise
        else:
            self.succeed(value)

    def __repr__(self) -> str:
        if not self._done:
            state = "open"
        else:
            state = "succeeded" if self._error is None else f"failed: {escape(describe(self._error))}"
        return f"<{type(self).__name__} {state}>"

    def _settle(self, value: T | None, error: BrokerError | None) -> None:
        if self._done:
            return
        self._done, self._value, self._error = True, value, error
        callbacks, self._callbacks = self._callbacks, []
        failure: BaseException | None = None
        for callback in callbacks:
            try:
                callback(self)
            except BaseException as error:  # one caller's bug must not keep the others waiting for ever
                failure = failure or error
        if failure is not None:
            raise failure


def as_broker_error(error: BaseException) -> BrokerError:
    """``error`` itself, or an :class:`InternalError` that it is the cause of: the host's own code raised it."""
    if isinstance(error, BrokerError):
        return error
    failure = InternalError(describe(error))
    failure.__cause__ = error
    return failure
