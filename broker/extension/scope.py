"""What the code that is running now belongs to: which process's runtime, and which request of the host.

A context variable, so that the same module-level objects of an author serve several processes of one test, and a
request of the extension knows which request of the host it is made for.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from broker.extension.context import Context
    from broker.extension.runtime import Runtime


@frozen
class Scope:
    """The runtime, and the call that is being worked on, if any."""

    runtime: Runtime
    call: Context | None = None


CURRENT: ContextVar[Scope | None] = ContextVar("broker.extension.scope", default=None)

LOADING: ContextVar[str | None] = ContextVar("broker.extension.loading", default=None)
"""The program that a test is loading into its own process, where nothing may take over stdin and stdout."""
