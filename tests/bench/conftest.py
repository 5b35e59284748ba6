"""Makes the benchmarks' own modules importable; the package under test stays the installed one."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
