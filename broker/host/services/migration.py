"""``migration/detect`` and ``migration/import``: the host has an adapter read the setup of another program.

The host says which directory may be read; the adapter only reads, and its answers are source-relative. What of them is
written, and where, is the host's to do. One request at a time, each within its deadline; an error ends the migration,
and nothing is imported that was not detected. Source: octet reference, models ``Migration*``; octet notes, section 4.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import field, frozen

from broker.errors import (
    BrokerError,
    CapabilityMismatchError,
    ExtensionError,
    InvalidParamsError,
    ResultError,
    UsageError,
)
from broker.host.outcome import Outcome
from broker.wire.octet.migration_models import (
    MigrationDetectResult,
    MigrationDiagnostic,
    MigrationImportResult,
    decode_detect_result,
    decode_import_result,
)
from broker.wire.quoting import quote
from broker.wire.requests import HostRequest

if TYPE_CHECKING:
    from broker.host.extension import Extension
    from broker.host.generation import Generation

T = TypeVar("T")


class SourceAccess(Protocol):
    """Which directories may be read, and what is in them; an adapter looks. Both calls may block."""

    def check_root(self, source_root: str) -> str:
        """``source_root`` if adapters may read it, else raise :class:`~broker.errors.SetupError`."""
        ...

    def survey(self, source_root: str, paths: Sequence[str]) -> object:
        """What ``paths`` below the root are now, to be compared with another survey.

        Raises :class:`~broker.errors.ResultError` for a path that is not there, or that leads out of the root.
        """
        ...


@frozen(kw_only=True)
class DetectedSetup:
    """What an adapter detected below ``source_root``; needed to import from it."""

    extension: str
    source_root: str
    result: MigrationDetectResult
    survey: object = field(repr=False)
    generation: int

    @property
    def config_paths(self) -> tuple[str, ...]:
        """The files that hold the setup, relative to the root."""
        return self.result.config_paths

    @property
    def diagnostics(self) -> tuple[MigrationDiagnostic, ...]:
        """What a person should know about them."""
        return self.result.diagnostics


class MigrationAdapter:
    """One process generation as a migration adapter; from :attr:`broker.host.Extension.migration`."""

    def __init__(self, generation: Generation, access: SourceAccess) -> None:
        self._generation = generation
        self._access = access
        self._at_work = False
        self._detected: DetectedSetup | None = None

    def detect(self, source_root: str, *, timeout_ms: int | None = None) -> Outcome[DetectedSetup]:
        """Have the adapter look for another program's setup below ``source_root``, an absolute directory.

        Raises :class:`~broker.errors.UsageError` while it works on a migration, ``capability_mismatch`` if the
        extension has not selected the method. Settles with :class:`~broker.errors.SetupError` for a root that may not
        be read, otherwise as a tool call does. Source: octet reference, ``MigrationDetectParams``.
        """
        self._begin("migration/detect")
        self._detected = None
        outcome: Outcome[DetectedSetup] = Outcome()

        def ask(root: str) -> None:
            params = {"source_root": root}
            then = partial(found, root)
            self._request(outcome, "migration/detect", params, timeout_ms, decode_detect_result, then)

        def found(root: str, result: MigrationDetectResult) -> None:
            repeated = _first_repeated(result.config_paths)
            if repeated is not None:
                self._end(outcome, ResultError(f"result of migration/detect: {quote(repeated)} appears twice"))
                return
            self._look(outcome, root, result.config_paths, lambda survey: keep(root, result, survey))

        def keep(root: str, result: MigrationDetectResult, survey: object) -> None:
            self._at_work = False
            self._detected = DetectedSetup(
                extension=self._generation.name,
                source_root=root,
                result=result,
                survey=survey,
                generation=self._generation.number,
            )
            outcome.succeed(self._detected)

        driver = self._generation.session.driver
        self._then(outcome, driver.offload(lambda: self._access.check_root(source_root)), ask)
        return outcome

    def import_from(
        self, setup: DetectedSetup, paths: Sequence[str] | None = None, *, timeout_ms: int | None = None
    ) -> Outcome[MigrationImportResult]:
        """Have the adapter convert the setup it has just detected, or those of its files that ``paths`` names.

        Nothing is written: what becomes of the result is the host's to decide. Raises
        :class:`~broker.errors.UsageError` for a setup of an earlier detection or generation and for paths that are no
        sequence, ``invalid_params`` for a path that was not detected or is named twice. Any error ends the migration,
        so that it has to be detected anew; so does a source file that is not what it was. Source: octet reference,
        ``MigrationImportParams``.
        """
        if setup is not self._detected or self._detected is None:
            raise UsageError("this setup was not the last one that was detected; detect it again", path="setup")
        if isinstance(paths, str) or not isinstance(paths, Sequence | None):
            raise UsageError(f"paths: needs a sequence of them, not {type(paths).__name__}", path="paths")
        chosen = setup.config_paths if paths is None else tuple(paths)
        if not setup.result.detected:
            raise InvalidParamsError("nothing was detected there", path="setup")
        for index, path in enumerate(chosen):
            if path not in setup.config_paths:
                raise InvalidParamsError(f"{quote(str(path))} was not detected", path=f"paths[{index}]")
        repeated = _first_repeated(chosen)
        if repeated is not None:
            raise InvalidParamsError(f"{quote(repeated)} appears twice", path="paths")
        self._begin("migration/import")
        outcome: Outcome[MigrationImportResult] = Outcome()

        def done(result: MigrationImportResult) -> None:
            self._look(outcome, setup.source_root, setup.config_paths, lambda survey: compare(result, survey))

        def compare(result: MigrationImportResult, survey: object) -> None:
            if survey != setup.survey:
                self._end(
                    outcome,
                    ExtensionError(
                        f"{self._generation.name}: the source setup changed while it was being read",
                        extension=self._generation.name,
                    ),
                )
                return
            self._at_work = False
            outcome.succeed(result)

        params = {"source_root": setup.source_root, "config_paths": list(chosen)}
        self._request(outcome, "migration/import", params, timeout_ms, decode_import_result, done)
        return outcome

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begin(self, method: str) -> None:
        generation = self._generation
        selection = generation.connection.selection
        if selection is None or method not in selection.methods:
            raise CapabilityMismatchError(
                f"{generation.name} has not selected {method}", extension=generation.name, method=method
            )
        if self._at_work:
            raise UsageError(f"{generation.name} works on a migration already", extension=generation.name)
        self._at_work = True

    def _request(
        self,
        outcome: Outcome[Any],
        method: str,
        params: dict[str, Any],
        timeout_ms: int | None,
        decode: Callable[[Any], T],
        then: Callable[[T], None],
    ) -> None:
        def settled(request: HostRequest) -> None:
            if request.error is not None:
                self._end(outcome, request.error)
            else:
                then(request.result)

        session = self._generation.session
        try:
            self._generation.connection.request(
                method,
                params,
                timeout_ms=session.settings.migration_timeout_ms if timeout_ms is None else timeout_ms,
                decode=decode,
                on_settled=settled,
            )
        except BrokerError as error:
            self._end(outcome, error)
        session.changed()

    def _look(self, outcome: Outcome[Any], root: str, paths: Sequence[str], then: Callable[[object], None]) -> None:
        self._then(outcome, self._generation.session.driver.offload(lambda: self._access.survey(root, paths)), then)

    def _then(self, outcome: Outcome[Any], step: Outcome[T], then: Callable[[T], None]) -> None:
        def settled(done: Outcome[T]) -> None:
            if done.error is not None:
                self._end(outcome, done.error)
            else:
                then(done.result())

        step.add_callback(settled)

    def _end(self, outcome: Outcome[Any], error: BrokerError) -> None:
        """The migration is over: to import, the host has to detect anew."""
        self._at_work = False
        self._detected = None
        outcome.fail(error)


def adapter_of(extension: Extension) -> MigrationAdapter:
    """The serving generation as an adapter; see :attr:`broker.host.Extension.migration`."""
    generation = extension.generation
    if generation is None or not generation.alive:
        raise ExtensionError(
            f"{extension.name} does not serve: it is {extension.health.value}", extension=extension.name
        )
    adapter: MigrationAdapter | None = getattr(generation, "migration", None)
    if adapter is None:
        raise CapabilityMismatchError(f"{extension.name} is no migration adapter here", extension=extension.name)
    return adapter


def _first_repeated(paths: Sequence[str]) -> str | None:
    return next((path for index, path in enumerate(paths) if path in paths[:index]), None)
