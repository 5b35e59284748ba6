"""What the programs beside this one share that are wrong in one thing: the name of the fault, and writing.

Each starts as often as it has faults, so they import next to nothing.
"""

from __future__ import annotations

import os
import sys

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""


def is_fault(*names: str) -> bool:
    return FAULT in names


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def split_as_text(lines: list[bytearray]) -> list[bytearray]:
    """The lines as one splits them who takes text for bytes: at whatever Unicode calls the end of a line."""
    return [bytearray(part.encode()) for line in lines for part in line.decode().splitlines()]


def start_helper() -> None:
    """Start what outlives this process."""
    import subprocess

    subprocess.Popen(["sleep", "20"], start_new_session=True)
