#!/usr/bin/env python3
"""Publishes ``bus.watcher.changes``: every file of the workspace once as ``added``, then each change as it is seen."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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

TOPIC = "bus.watcher.changes"
MAX_NAME_BYTES = 512
MAX_SIZE = 2**53 - 1
SKIPPED_DIRECTORIES = {
    "__pycache__",
    "node_modules",
    "build",
    "dist",
    "target",
    "venv",
    "env",
    "site-packages",
    "_build",
}
# Everybody starts at once and nobody is sent what was published before: give the others a moment to subscribe.
SETTLE_SECONDS = 0.5
PACE_SECONDS = 0.002
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.02, 1.0

State = tuple[int, int]


def files(root: str, most: int) -> Iterator[tuple[str, State]]:
    """Relative name, modification time and size of up to ``most`` regular files, in a stable order."""
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = sorted(
            name for name in subdirectories if not name.startswith(".") and name not in SKIPPED_DIRECTORIES
        )
        for name in sorted(names):
            entry = os.path.join(directory, name)
            try:
                status = os.stat(entry, follow_symlinks=False)
            except OSError:
                continue  # gone between listing and looking
            if not stat.S_ISREG(status.st_mode):
                continue
            if most == 0:
                return
            most -= 1
            yield os.path.relpath(entry, root).replace(os.sep, "/"), (status.st_mtime_ns, status.st_size)


def publishable(name: str) -> bool:
    """Whether a file's name is text of a size the topic takes; what else the bus screens, it says itself."""
    try:
        return 0 < len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


class Watcher:
    def __init__(self) -> None:
        fields = [text_field("file", MAX_NAME_BYTES), enum_field("kind", "added", "changed", "removed")]
        fields.append(integer_field("size", 0, MAX_SIZE))
        self.extension = Extension(topics={TOPIC: fields}, work=self.watch)
        self.known: dict[str, State] = {}
        self.waiting: dict[str, tuple[str, int]] = {}  # one change a file: a later one replaces what was not yet sent
        self.skipped: set[str] = set()
        self.revision = 0

    def watch(self) -> None:
        interval = max(50, int(self.extension.flags.get("interval-ms", 500))) / 1000
        while True:
            revision = self.extension.wait_bound(timeout=1.0)
            if revision == 0:
                continue
            if revision != self.revision:
                # A new bus knows nothing of what was told to the old one.
                self.revision = revision
                self.known.clear()
                self.waiting.clear()
                time.sleep(SETTLE_SECONDS)
            self.look()
            self.send()
            time.sleep(interval)

    def look(self) -> None:
        """Compare the workspace with what is known and note every difference."""
        most = max(1, int(self.extension.flags.get("max-files", 2000)))
        found = dict(files(self.extension.workspace, most))
        for name, state in found.items():
            if name not in self.known:
                self.waiting[name] = ("added", state[1])
            elif self.known[name] != state:
                # Still unsent as added: whoever hears of it hears of a new file.
                first = self.waiting.get(name, ("changed", 0))[0]
                self.waiting[name] = ("added" if first == "added" else "changed", state[1])
        for name in self.known:
            if name not in found:
                self.waiting[name] = ("removed", 0)
        self.known = found

    def send(self) -> None:
        """Publish what waits, at a pace; on a full queue try the same change again, later."""
        pause = FIRST_RETRY_SECONDS
        while self.waiting:
            name = next(iter(self.waiting))
            kind, size = self.waiting[name]
            if not publishable(name):
                self.skip(name)
                continue
            try:
                self.extension.publish(TOPIC, {"file": name, "kind": kind, "size": min(size, MAX_SIZE)})
            except UnboundError:
                return
            except RefusedError as error:
                if error.code == INVALID_PARAMS:
                    self.skip(name)
                elif error.code == RESOURCE_EXHAUSTED:
                    time.sleep(pause)
                    pause = min(pause * 2, LAST_RETRY_SECONDS)
                else:
                    return  # the binding changed; the next round starts over
            else:
                del self.waiting[name]
                pause = FIRST_RETRY_SECONDS
                time.sleep(PACE_SECONDS)

    def skip(self, name: str) -> None:
        del self.waiting[name]
        if name not in self.skipped:
            self.skipped.add(name)
            log(f"skipped {name!a}: not a name the bus takes ({len(self.skipped)} so far)")


if __name__ == "__main__":
    sys.exit(Watcher().extension.run())
