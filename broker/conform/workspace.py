"""The directory that a program under test works in: new for each process, with a few ordinary files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FILES: Final = {
    "README.rst": "Example\n=======\n\nA directory made for a conformance run.\n",
    "notes.txt": "one line\nanother line\n",
    "example.py": "ANSWER = 42\n",
}


@contextmanager
def make_workspace(given: str | None) -> Iterator[tuple[str, Path]]:
    """The workspace (``given``, or a new one) and a new directory beside it for scratch files; both for one process."""
    with tempfile.TemporaryDirectory(prefix="broker-conform-", ignore_cleanup_errors=True) as directory:
        root = Path(directory).resolve()
        scratch = root / "scratch"
        scratch.mkdir(mode=0o700)
        workspace = root / "workspace"
        workspace.mkdir()
        for name, text in _FILES.items():
            (workspace / name).write_text(text, encoding="utf-8")
        yield given or str(workspace), scratch
