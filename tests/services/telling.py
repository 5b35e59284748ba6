"""Has extensions ask for services, in memory, and gives what they are answered."""

from __future__ import annotations

from itertools import count
from typing import Any

from service_scripts import Told

from broker.testing import MemorySession, make_manifest

_ids = count(1)


def start(session: MemorySession, *capabilities: str, name: str = "ext", **options: Any) -> Any:
    """A started extension that selected ``capabilities`` and says what the test tells it to; its object is ``.far``."""

    def make() -> Told:
        extension.far = Told(capabilities=capabilities)
        return extension.far

    extension: Any = session.add(make_manifest(name, **options), make)
    return session.settle(extension.start())


def told_one(session: MemorySession, *capabilities: str, **options: Any) -> tuple[MemorySession, Any]:
    """The session, and what :func:`start` starts in it."""
    return session, start(session, *capabilities, **options)


def send(session: MemorySession, extension: Any, method: str, params: Any, request_id: Any = None) -> Any:
    """The extension asks; gives the id under which it did."""
    request_id = f"r{next(_ids)}" if request_id is None else request_id
    extension.far.request(request_id, method, params)
    session.run()
    return request_id


def notify(session: MemorySession, extension: Any, method: str, params: Any) -> None:
    """The extension notifies."""
    extension.far.send({"jsonrpc": "2.0", "method": method, "params": params})
    session.run()


def answered(extension: Any, request_id: Any) -> Any:
    """What that request was answered with: the result, ``(code, data)``, or None as long as it was not."""
    found = extension.far.answer_to(request_id)
    if found is None or "result" in found:
        return found and found["result"]
    return found["error"]["code"], found["error"].get("data")


def ask(session: MemorySession, extension: Any, method: str, params: Any) -> Any:
    """The extension asks; gives the answer as :func:`answered`."""
    return answered(extension, send(session, extension, method, params))
