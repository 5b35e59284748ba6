"""Stub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.conform.rules import Family, Rule, table

HOST_RULES: Final[Mapping[str, Rule]] = table(Family.HOST, ())
