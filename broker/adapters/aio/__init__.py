"""The asyncio driver: processes pumped from a loop, sessions awaited, peers read with ``async for``."""

from broker.adapters.aio.driver import AsyncioDriver
from broker.adapters.aio.host import AsyncHost, AsyncSession
from broker.adapters.aio.reader import read_messages
from broker.adapters.aio.services import SessionServices
from broker.adapters.aio.stream import AsyncStream

__all__ = ["AsyncHost", "AsyncSession", "AsyncStream", "AsyncioDriver", "SessionServices", "read_messages"]
