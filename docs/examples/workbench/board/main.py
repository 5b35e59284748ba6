#!/usr/bin/env python3
"""Subscribes to ``bus.watcher.changes`` and ``bus.checker.report``; the tool ``summary`` says how things stand."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(os.environ["OCTET_EXTENSION_DIR"]).parent))

from octet_client import Extension, Tool  # noqa: E402

CHANGES, REPORT = "bus.watcher.changes", "bus.checker.report"
MAX_FILES = 20_000
DEFAULT_LIMIT, MAX_LIMIT = 10, 100
PARAMETERS = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT}},
    "additionalProperties": False,
}


class Board:
    def __init__(self) -> None:
        tool = Tool("How many files there are, how many were checked, and the worst of them.", PARAMETERS, self.summary)
        self.extension = Extension(tools={"summary": tool}, subscriptions=(CHANGES, REPORT), on_event=self.note)
        self.lock = threading.Lock()
        self.sizes: dict[str, int] = {}
        self.reports: dict[str, dict[str, Any]] = {}

    def note(self, topic: str, payload: dict[str, Any]) -> None:
        name = payload["file"]
        with self.lock:
            if topic == REPORT:
                if name in self.reports or len(self.reports) < MAX_FILES:
                    self.reports[name] = payload
            elif payload["kind"] == "removed":
                self.sizes.pop(name, None)
                self.reports.pop(name, None)
            elif name in self.sizes or len(self.sizes) < MAX_FILES:
                self.sizes[name] = payload["size"]

    def summary(self, arguments: Any, cancelled: threading.Event) -> tuple[str, Any]:
        if not isinstance(arguments, dict) or not set(arguments) <= {"limit"}:
            raise ValueError("summary takes an object with at most the key limit")
        limit = arguments.get("limit", DEFAULT_LIMIT)
        if type(limit) is not int or not 0 <= limit <= MAX_LIMIT:
            raise ValueError(f"limit must be an integer from 0 to {MAX_LIMIT}")
        with self.lock:
            reports = list(self.reports.values())
            files, size = len(self.sizes), sum(self.sizes.values())
        counts = {verdict: sum(r["verdict"] == verdict for r in reports) for verdict in ("ok", "warning", "error")}
        worst = sorted(
            (report for report in reports if report["verdict"] != "ok"),
            key=lambda report: (report["verdict"] != "error", -report["problems"], report["file"]),
        )[:limit]
        lines = [
            (
                f"{files} files, {size} bytes; {len(reports)} checked: "
                f"{counts['ok']} ok, {counts['warning']} with findings, {counts['error']} broken"
            )
        ]
        lines += [f"{report['verdict']}: {report['file']}: {report['summary']}" for report in worst]
        return "\n".join(lines), {"files": files, "bytes": size, "checked": len(reports), **counts, "worst": worst}


if __name__ == "__main__":
    sys.exit(Board().extension.run())
