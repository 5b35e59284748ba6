"""A command of a virtual environment that is not activated: extensions still find the Python that has broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = """#!/usr/bin/env python3
import sys
from pathlib import Path

Path(__file__).with_name("seen").write_text(sys.prefix)
"""
MANIFEST = 'name = "looks"\nversion = "1.0.0"\napi_version = "0.3"\n[entrypoint]\ncommand = "main.py"\n'
SYSTEM = os.defpath


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this Python is in no virtual environment")
def test_the_python_of_the_command_comes_first(tmp_path: Path) -> None:
    (tmp_path / "extension.toml").write_text(MANIFEST)
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "main.py").chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "broker.cli", "call", tmp_path, "none", "{}"],
        env={**os.environ, "PATH": SYSTEM, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=60,
    )
    assert (tmp_path / "seen").read_text() == sys.prefix
