"""The six fixture tools of the odek contract as a runnable server: ``python -m broker.testing.odek_server --root DIR``.

``echo``, ``large_result``, ``artifact_result``, ``bad_artifact``, ``slow`` and ``error_result`` behave as hosts meet
them: well, at length, with a file beside, with a ref that must be refused, late, and not at all.

Source: odek contract, "Building a compatible server".
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any, Literal

from broker.adapters.mcp_server import Context, Envelope, Server, ToolFailureError

REPORT = "FAIL pkg/a TestX\nok pkg/b 1.2s\n"
BadRef = Literal["digest", "size", "outside", "traversal", "missing", "http", "schema"]
_POLL_SECONDS = 0.01


def make_server(root: str, name: str = "fixture") -> Server:
    """The fixture server, writing its artifacts under ``root``."""
    server = Server(name, artifact_root=root)

    @server.tool
    def echo(text: str = "") -> str:
        """Answer with the text it is given."""
        return text

    @server.tool
    def large_result(chars: int = 5000) -> str:
        """Answer with as many characters as asked for."""
        return "x" * max(0, chars)

    @server.tool
    def artifact_result(text: str = "2 packages tested, 1 failed.") -> Envelope:
        """Answer with a summary and a report beside it."""
        return Envelope(text, [_report(server)])

    @server.tool
    def bad_artifact(fault: BadRef = "digest") -> Envelope:
        """Answer with a ref that a host must refuse."""
        return Envelope("See the report.", [_spoiled(_report(server), fault)])

    @server.tool
    def slow(context: Context, seconds: float = 1.0) -> str:
        """Answer after some seconds, or sooner when the call is given up."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if context.cancelled:
                return "cancelled"
            time.sleep(min(left, _POLL_SECONDS))
        return "done"

    @server.tool
    def error_result(text: str = "it did not work") -> str:
        """Fail with the text it is given."""
        raise ToolFailureError(text)

    return server


def _report(server: Server) -> dict[str, Any]:
    return server.artifact(
        "report-1", REPORT, media_type="text/plain", summary="Full CI test results (JUnit XML)", suffix=".txt"
    )


def _spoiled(ref: dict[str, Any], fault: BadRef) -> dict[str, Any]:
    changes: dict[BadRef, dict[str, Any]] = {
        "digest": {"sha256": "0" * 64},
        "size": {"size_bytes": ref["size_bytes"] + 1},
        "outside": {"uri": "file:///etc/hostname", "sha256": None, "size_bytes": None},
        "traversal": {"uri": os.path.dirname(ref["uri"]) + "/../" + os.path.basename(ref["uri"])},
        "missing": {"uri": ref["uri"] + ".gone"},
        "http": {"uri": "http://localhost/report.txt"},
        "schema": {"schema": "odek.artifact-ref/v2"},
    }
    return {key: value for key, value in {**ref, **changes[fault]}.items() if value is not None}


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="directory artifacts are written to")
    parser.add_argument("--name", default="fixture")
    given = parser.parse_args(argv)
    make_server(given.root, given.name).run()


if __name__ == "__main__":
    main()
