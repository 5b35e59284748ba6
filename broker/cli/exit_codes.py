"""What the command's exit status means."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILURE: Final = 1
"""A tool or an extension failed."""
USAGE: Final = 2
"""The command line is wrong."""
SETUP: Final = 3
"""A manifest, an executable or the workspace is wrong; nothing was run."""
BUDGET: Final = 4
"""The budget of the run is spent."""
INTERRUPTED: Final = 130
"""Interrupted before there was anything to say; what a shell gives for Ctrl-C."""
