#!/usr/bin/env python3
"""An MCP server made with broker's kit: it reads a log and hands the whole report on as an artifact."""

from __future__ import annotations

import os
import re
from pathlib import Path

from broker.adapters.mcp_server import Envelope, Server, ToolFailureError

FAILURE = re.compile(r"\b(?:FAILED|ERROR)\b.*")

server = Server("log-analyzer", "1.0.0", artifact_root=os.environ["ARTIFACTS"])


@server.tool
def summarize(file: str, limit: int = 3) -> Envelope:
    """Summarize a log file: how many of its lines failed, and the first of them."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolFailureError(f"{file} cannot be read: {error}") from error
    failures = [found[0] for line in lines if (found := FAILURE.search(line))]
    report = server.artifact(
        "failures", "".join(f"{line}\n" for line in failures), media_type="text/plain", summary="every failure"
    )
    first = "".join(f"\n{line}" for line in failures[: max(0, limit)])
    return Envelope(f"{len(failures)} of {len(lines)} lines failed.{first}", [report])


if __name__ == "__main__":
    server.run()
