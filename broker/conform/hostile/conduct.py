"""Runs a host's command with one hostile extension after another."""

from __future__ import annotations

from broker.conform.report import Report
from broker.conform.settings import ConformSettings
from broker.errors import UsageError


def examine_host(command: str, settings: ConformSettings, *, timeout: float | None = None) -> Report:
    """A report on the host that ``command`` runs."""
    raise UsageError("hosts cannot be judged yet")
