"""``python -m broker.cli`` is the ``broker`` command."""

from __future__ import annotations

import sys

from broker.cli.main import main

sys.exit(main())
