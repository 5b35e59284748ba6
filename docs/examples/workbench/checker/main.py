#!/usr/bin/env python3
"""Subscribes to ``bus.watcher.changes`` and publishes ``bus.checker.report`` for every Python file it names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(os.environ["OCTET_EXTENSION_DIR"]).parent))

from octet_client import (  # noqa: E402
    INVALID_PARAMS,
    RESOURCE_EXHAUSTED,
    Extension,
    RefusedError,
    UnboundError,
    enum_field,
    integer_field,
    log,
    text_field,
)

CHANGES, REPORT = "bus.watcher.changes", "bus.checker.report"
MAX_NAME_BYTES, MAX_SUMMARY_BYTES = 512, 200
MAX_SOURCE_BYTES = 1_048_576
MAX_WAITING = 10_000
RUFF_SECONDS = 20
PAUSE_SECONDS = 0.1

Verdict = tuple[str, int, str]


class Checker:
    def __init__(self) -> None:
        fields = [text_field("file", MAX_NAME_BYTES), enum_field("verdict", "ok", "warning", "error")]
        fields += [integer_field("problems", 0, 1_000_000), text_field("summary", MAX_SUMMARY_BYTES)]
        self.extension = Extension(
            topics={REPORT: fields}, subscriptions=(CHANGES,), on_event=self.note, work=self.check_all
        )
        self.ruff = shutil.which("ruff")
        self.changed = threading.Condition()
        self.waiting: dict[str, None] = {}  # a file that changes again while it waits is checked once

    def note(self, topic: str, payload: dict[str, Any]) -> None:
        """Remember what to check. Runs between two reads of the input, so it does nothing else."""
        name = payload["file"]
        with self.changed:
            if payload["kind"] == "removed":
                self.waiting.pop(name, None)
            elif name.endswith(".py") and len(self.waiting) < MAX_WAITING:
                self.waiting[name] = None
                self.changed.notify()

    def check_all(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: bool(self.waiting))
                name = next(iter(self.waiting))
                del self.waiting[name]
            found = self.check(name)
            if found is not None:
                self.report(name, found)

    def check(self, name: str) -> Verdict | None:
        """The verdict on one file; ``None`` when it is gone or no longer a file of the workspace."""
        root = Path(self.extension.workspace).resolve()
        file = root / name
        try:
            if file.is_symlink() or root not in file.resolve().parents or not file.is_file():
                return None
            with open(file, "rb") as stream:
                source = stream.read(MAX_SOURCE_BYTES + 1)
        except OSError:
            return None
        if len(source) > MAX_SOURCE_BYTES:
            return ("warning", 1, "too large to be checked")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                compile(source, name, "exec", dont_inherit=True)
            except SyntaxError as error:
                return ("error", 1, f"{type(error).__name__} on line {error.lineno or 0}")
            except (ValueError, RecursionError, MemoryError, OverflowError) as error:
                return ("error", 1, f"{type(error).__name__}: cannot be compiled")
        problems = len(caught) + self.lint(file)
        if problems:
            return ("warning", problems, f"compiles, {problems} finding{'s' if problems > 1 else ''}")
        return ("ok", 0, "compiles" if self.ruff is None else "compiles, nothing found")

    def lint(self, file: Path) -> int:
        """How many findings ruff has; none where there is no ruff or it does not work."""
        if self.ruff is None:
            return 0
        command = [
            self.ruff,
            "check",
            "--quiet",
            "--no-cache",
            "--exit-zero",
            "--output-format",
            "concise",
            "--",
            str(file),
        ]
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self.extension.workspace,
                timeout=RUFF_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log(f"ruff failed: {type(error).__name__}")
            return 0
        return len(ended.stdout.splitlines()) if ended.returncode == 0 else 0

    def report(self, name: str, found: Verdict) -> None:
        verdict, problems, summary = found
        payload = {"file": name, "verdict": verdict, "problems": min(problems, 1_000_000), "summary": summary}
        while True:
            try:
                self.extension.publish(REPORT, payload)
                return
            except UnboundError:
                # Between two buses: the watcher names every file again on the next one.
                if self.extension.wait_bound(timeout=1.0) == 0:
                    return
            except RefusedError as error:
                if error.code != RESOURCE_EXHAUSTED:
                    if error.code == INVALID_PARAMS:
                        log(f"no report on {name!a}: not a name the bus takes")
                    return
                time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    sys.exit(Checker().extension.run())
