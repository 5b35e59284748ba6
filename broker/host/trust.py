"""Whether an extension may be started: three questions in a fixed order, each with an answer of its own.

Is it enabled; if it came with the workspace, is the workspace trusted; is its program trusted. Enabling and trusting
are separate facts, and finding an extension never runs it. Source: octet notes, section 1, "Enable/trust".
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from attrs import field, frozen

from broker.errors import TrustError
from broker.wire.octet.manifest_model import Manifest, Source


class Verdict(Enum):
    """The answer: it may be started, or the first thing that is missing."""

    ALLOWED = "allowed"
    DISABLED = "disabled"
    NEEDS_WORKSPACE_TRUST = "needs workspace trust"
    NEEDS_HOST_AUTHORITY = "needs host authority"


@frozen
class Grant:
    """Trust in the program of the extension ``name``.

    With ``manifest_path`` it is for that manifest alone, without it for the extension of that name among the ``global``
    ones. ``once`` is for this invocation of the host, wherever the extension was found.
    """

    name: str
    manifest_path: str | None = None
    once: bool = False

    def covers(self, manifest: Manifest, source: Source) -> bool:
        """Whether it is trust in this extension."""
        if self.name != manifest.name:
            return False
        if self.manifest_path is not None:
            return self.manifest_path == manifest.path
        return self.once or source == "global"


@frozen(kw_only=True)
class TrustPolicy:
    """What a host's user has decided.

    - ``disabled`` are names of extensions that are not to run, whatever else is granted.
    - ``workspace_trusted`` says that extensions which came with the workspace may run at all.
    - ``grants`` is the trust in programs that was given.
    - ``full_access`` trusts every program; it is a decision about this host and is never written down as grants.

    Extensions that the caller names (source ``explicit``) need no grant.
    """

    disabled: Collection[str] = field(default=frozenset(), converter=frozenset)
    workspace_trusted: bool = False
    grants: tuple[Grant, ...] = field(default=(), converter=tuple)
    full_access: bool = False

    def decide(self, manifest: Manifest, source: Source) -> Verdict:
        """The verdict on an extension found under a root of kind ``source``."""
        if manifest.name in self.disabled:
            return Verdict.DISABLED
        if source == "project" and not self.workspace_trusted:
            return Verdict.NEEDS_WORKSPACE_TRUST
        trusted = self.full_access or source == "explicit"
        if not trusted and not any(grant.covers(manifest, source) for grant in self.grants):
            return Verdict.NEEDS_HOST_AUTHORITY
        return Verdict.ALLOWED

    def require(self, manifest: Manifest, source: Source) -> None:
        """Raise :class:`~broker.errors.TrustError` unless it is allowed."""
        verdict = self.decide(manifest, source)
        if verdict is not Verdict.ALLOWED:
            raise TrustError(
                f"{manifest.name} ({source}): {verdict.value}",
                verdict=verdict.value,
                extension=manifest.name,
                path=manifest.path,
            )
