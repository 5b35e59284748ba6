"""Starts a hostile program as a process of its own: ``start.py MODULE SCENARIO LOG``.

The programs share a module, and take the standard library alone beside it: a host starts them often, and without the
packages of whoever runs it.
"""

from __future__ import annotations

import importlib
import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    importlib.import_module(f"hostile.{sys.argv[1]}").Program(*sys.argv[2:]).main()
