"""``theme/select``: an extension asks for one of the host's themes, within its own namespace.

The checks stand in a fixed order: shape (before it comes here), namespace, catalogue, trust, and last the host's own
decision. Source: octet reference, models ``ThemeSelect*``; octet notes, section 4.7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from attrs import frozen

from broker.errors import CapabilityMismatchError, InternalError, InvalidParamsError, UsageError
from broker.host.outcome import Outcome
from broker.host.services.asking import Answer, Awaiting, Principal, ask
from broker.limits import MAX_THEME_ID_BYTES
from broker.wire.octet.schema import check, encode
from broker.wire.octet.session_models import ThemeSelectParams, ThemeSelectResult
from broker.wire.quoting import quote, utf8_length

TRUSTED: Final = frozenset(("compiled", "user"))


@frozen
class ThemeChoice:
    """A selection that is allowed as far as the catalogue goes: who asks, for which theme, for which role."""

    asked_by: Principal
    theme_id: str
    role: str


Decide: TypeAlias = Callable[[ThemeChoice], Answer[ThemeSelectResult]]


class ThemeCatalogue:
    """The themes a host offers.

    ``themes`` maps ids to where each comes from: ``compiled`` and ``user`` can be selected, anything else (such as
    ``project``) is refused. ``extensions`` names those that are offered the service at all; without it all are. Some
    programs for octet 0.3 refuse an offer that has it, so naming them is the safe way. ``decide`` has the last word,
    and may apply the theme: it answers with a :class:`ThemeSelectResult`; without it the theme is ``selected``.

    Raises :class:`~broker.errors.UsageError` for a catalogue of another shape, and for a theme id that is empty or over
    128 bytes.
    """

    def __init__(
        self, themes: Mapping[str, str], *, extensions: Collection[str] | None = None, decide: Decide | None = None
    ) -> None:
        if not isinstance(themes, Mapping) or not all(type(text) is str for pair in themes.items() for text in pair):
            raise UsageError("themes: needs a mapping of theme ids to where each comes from", path="themes")
        if isinstance(extensions, str):
            raise UsageError("extensions: needs a collection of names, not one name", path="extensions")
        if decide is not None and not callable(decide):
            raise UsageError(f"decide: is called, and {type(decide).__name__} cannot be", path="decide")
        for theme_id in themes:
            if not theme_id or utf8_length(theme_id) > MAX_THEME_ID_BYTES:
                raise UsageError(
                    f"theme id {quote(theme_id)} is not 1 to {MAX_THEME_ID_BYTES} bytes",
                    limit="MAX_THEME_ID_BYTES",
                    observed=utf8_length(theme_id),
                    maximum=MAX_THEME_ID_BYTES,
                )
        self.themes: Mapping[str, str] = MappingProxyType(dict(themes))
        self._extensions = None if extensions is None else frozenset(extensions)
        self._decide = decide

    def serves(self, extension: str) -> bool:
        """Whether the service is offered to the extension of this name."""
        return self._extensions is None or extension in self._extensions

    def select(
        self, asked_by: Principal, params: ThemeSelectParams, *, awaiting: Awaiting | None = None
    ) -> Outcome[ThemeSelectResult]:
        """The host's decision.

        Raises ``capability_mismatch`` for another's namespace or a theme that is not to be trusted, ``invalid_params``
        for an unknown theme.
        """
        if params.namespace != asked_by.extension:
            raise CapabilityMismatchError(f"namespace {quote(params.namespace)} is not the caller's", path="namespace")
        trust = self.themes.get(params.theme_id)
        if trust is None:
            raise InvalidParamsError(f"there is no theme {quote(params.theme_id)}", path="theme_id")
        if trust not in TRUSTED:
            raise CapabilityMismatchError(f"theme {quote(params.theme_id)} is of trust {trust}", path="theme_id")
        outcome: Outcome[ThemeSelectResult] = Outcome()
        if self._decide is None:
            outcome.succeed(ThemeSelectResult(status="selected", theme_id=params.theme_id))
            return outcome

        def decided(done: Outcome[ThemeSelectResult]) -> None:
            if done.error is not None:
                outcome.fail(done.error)
            else:
                outcome.settle_with(lambda: self._checked(done.result()))

        choice = ThemeChoice(asked_by, params.theme_id, params.role)
        ask(self._decide, choice, awaiting=awaiting).add_callback(decided)
        return outcome

    def _checked(self, result: ThemeSelectResult) -> ThemeSelectResult:
        if not isinstance(result, ThemeSelectResult) or check(ThemeSelectResult, encode(result)):
            raise InternalError("the theme policy answered with no valid ThemeSelectResult")
        if result.status == "selected" and self.themes.get(str(result.theme_id)) not in TRUSTED:
            raise InternalError("the theme policy selected a theme that is unknown or not to be trusted")
        return result
