"""What happened on a connection to an MCP server, in numbers."""

from __future__ import annotations

from attrs import frozen


@frozen
class McpStatistics:
    """``junk_lines`` and ``junk_bytes`` were no messages; for ``ignored_answers`` no open request was waiting.

    ``open_requests`` wait for their answers now, ``queued_frames`` for being written.
    """

    junk_lines: int
    junk_bytes: int
    ignored_answers: int
    open_requests: int
    queued_frames: int
