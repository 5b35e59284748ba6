"""Listening in on what a driver moves between a session and its processes."""

from __future__ import annotations

from typing import Protocol

from broker.host import ProcessLink


class Tap(Protocol):
    """Told of every byte, in the session's thread, in order; it must not raise, and takes no part."""

    def spawned(self, link: ProcessLink) -> None:
        """The link's process runs."""
        ...

    def sent(self, link: ProcessLink, data: bytes) -> None:
        """The process wrote ``data``; the link has not seen it yet."""
        ...

    def heard(self, link: ProcessLink, data: bytes) -> None:
        """``data`` is with the process."""
        ...

    def wrote_stderr(self, link: ProcessLink, data: bytes) -> None:
        """The process wrote ``data`` to stderr."""
        ...

    def input_closed(self, link: ProcessLink) -> None:
        """The process's input was closed."""
        ...

    def output_closed(self, link: ProcessLink) -> None:
        """The process closed its output."""
        ...

    def exited(self, link: ProcessLink, status: int | None) -> None:
        """The process is gone; the link does not know yet."""
        ...
