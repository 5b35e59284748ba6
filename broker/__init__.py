"""An embedded event bus and plugin broker for Python host processes.

The bus and its types, the sans-IO :class:`Host` and :class:`Session`, and the errors are here. What does IO is imported
by its own name: :class:`broker.adapters.aio.AsyncHost` for programs with an asyncio loop and
:class:`broker.adapters.blocking.BlockingHost` for those without. :mod:`broker.testing` is the test kit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from broker.bus import (
    Active,
    Binding,
    Bounds,
    Bus,
    Event,
    Field,
    Message,
    Peer,
    Pending,
    Receipt,
    TopicAvailable,
    TopicUnavailable,
    topic,
)
from broker.errors import BrokerError

if TYPE_CHECKING:
    from broker.host import Host, HostServices, HostSettings, Session

__all__ = [
    "Active",
    "Binding",
    "Bounds",
    "BrokerError",
    "Bus",
    "Event",
    "Field",
    "Host",
    "HostServices",
    "HostSettings",
    "Message",
    "Peer",
    "Pending",
    "Receipt",
    "Session",
    "TopicAvailable",
    "TopicUnavailable",
    "topic",
]


def __getattr__(name: str) -> Any:
    # The host brings every wire along; a program that uses the bus alone need not load them.
    if name in ("Host", "HostServices", "HostSettings", "Session"):
        from broker import host

        return getattr(host, name)
    raise AttributeError(f"module 'broker' has no attribute {name!r}")


def _read_in_asyncio(peer: Peer) -> AsyncIterator[Message]:
    # Imported when somebody waits for a peer, so that programs without a loop never load asyncio.
    from broker.adapters.aio.reader import read_messages

    return read_messages(peer)


Peer.async_reader = staticmethod(_read_in_asyncio)
