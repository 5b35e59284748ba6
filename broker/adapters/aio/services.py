"""What a session with a loop does with the services that extensions have: models, migrations, turns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from broker.adapters.aio.driver import AsyncioDriver
from broker.adapters.aio.stream import AsyncStream
from broker.adapters.aio.waiting import milliseconds, wait
from broker.host import DetectedSetup, RegisteredProvider, Session
from broker.wire.octet.migration_models import MigrationImportResult


class SessionServices:
    """The part of :class:`~broker.adapters.aio.AsyncSession` that is about services."""

    session: Session
    _driver: AsyncioDriver

    async def providers(self, extension: str) -> tuple[RegisteredProvider, ...]:
        """What an extension provides, as soon as it has declared it all; see :meth:`broker.Session.providers`."""
        self._driver.check_usable()
        return await wait(self.session.providers(extension))

    def stream(
        self,
        provider_id: str,
        model_id: str,
        request: Any,
        *,
        lease: str | None = None,
        idle_timeout: float | None = None,
        timeout: float | None = None,
    ) -> AsyncStream:
        """Ask a model that an extension provides; read the events with ``async for``, best inside ``async with``.

        ``idle_timeout`` and ``timeout`` are seconds. Errors: see :meth:`broker.Session.stream` for those of this call,
        and :class:`~broker.adapters.aio.AsyncStream` for those of reading.
        """
        self._driver.check_usable()
        return AsyncStream(
            self.session.stream(
                provider_id,
                model_id,
                request,
                lease=lease,
                idle_timeout_ms=None if idle_timeout is None else milliseconds(idle_timeout),
                timeout_ms=None if timeout is None else milliseconds(timeout),
            )
        )

    def begin_turn(self) -> None:
        """Say that the host is busy: session changes wait. See :class:`broker.host.SessionControl`."""
        self.session.control.begin_turn()

    def end_turn(self) -> None:
        """Say that a turn is over; after the last one, what waits is carried out."""
        self.session.control.end_turn()

    async def detect_setup(
        self, extension: str, source_root: str | os.PathLike[str], *, timeout: float | None = None
    ) -> DetectedSetup:
        """Have a migration adapter look for a setup; see :meth:`broker.host.MigrationAdapter.detect`."""
        self._driver.check_usable()
        adapter = self.session.extension(extension).migration
        timeout_ms = None if timeout is None else milliseconds(timeout)
        return await wait(adapter.detect(os.fspath(source_root), timeout_ms=timeout_ms))

    async def import_setup(
        self, setup: DetectedSetup, paths: Sequence[str] | None = None, *, timeout: float | None = None
    ) -> MigrationImportResult:
        """Have the adapter convert what it detected; see :meth:`broker.host.MigrationAdapter.import_from`."""
        self._driver.check_usable()
        adapter = self.session.extension(setup.extension).migration
        timeout_ms = None if timeout is None else milliseconds(timeout)
        return await wait(adapter.import_from(setup, paths, timeout_ms=timeout_ms))
