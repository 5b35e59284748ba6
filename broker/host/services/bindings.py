"""The one place where a host binds something to the optional services of extensions."""

from __future__ import annotations

from attrs import frozen

from broker.errors import UsageError
from broker.host.services.asking import require_methods
from broker.host.services.migration import SourceAccess
from broker.host.services.provider_auth import AuthPolicy
from broker.host.services.registry import ProviderRegistry
from broker.host.services.session_control import DRIVER_METHODS, SessionDriver
from broker.host.services.themes import ThemeCatalogue
from broker.wire.octet.manifest_model import Manifest


@frozen(kw_only=True)
class HostServices:
    """What a host offers to extensions beyond tools, hooks and the bus. What is left out is not offered.

    - ``session_driver`` makes the changes of ``session_lifecycle``; it can be replaced or taken away later through
      :attr:`broker.Session.control`.
    - ``themes`` is the catalogue of ``theme_selection``.
    - ``providers`` is the registry of ``provider_catalog``, ``provider_auth`` and ``provider_stream``, which are
      offered to extensions whose manifest contributes providers. It belongs to one host.
    - ``auth_policy`` decides about ``provider_auth``. Without it the answers are fixed by the kind of authorisation.
    - ``migrations`` says which directories adapters may read, for ``migration.adapter.v1``; see
      :class:`broker.adapters.source_roots.SourceRoots`.

    Raises :class:`~broker.errors.UsageError` for something that cannot be what it is bound as.
    """

    session_driver: SessionDriver | None = None
    themes: ThemeCatalogue | None = None
    providers: ProviderRegistry | None = None
    auth_policy: AuthPolicy | None = None
    migrations: SourceAccess | None = None

    def __attrs_post_init__(self) -> None:
        if self.session_driver is not None:
            require_methods(self.session_driver, "session_driver", *DRIVER_METHODS)
        if self.migrations is not None:
            require_methods(self.migrations, "migrations", "check_root", "survey")
        for name, kind in (("themes", ThemeCatalogue), ("providers", ProviderRegistry)):
            if not isinstance(getattr(self, name), kind | None):
                found = type(getattr(self, name)).__name__
                raise UsageError(f"{name}: needs a {kind.__name__}, not {found}", path=name)
        if self.auth_policy is not None and not callable(self.auth_policy):
            raise UsageError(
                f"auth_policy: is called, and {type(self.auth_policy).__name__} cannot be", path="auth_policy"
            )
        if self.auth_policy is not None and self.providers is None:
            raise UsageError("auth_policy decides about providers, and there is no registry of them", path="providers")

    def capabilities(self, manifest: Manifest) -> list[str]:
        """The optional capabilities that are offered to an extension because something is bound to them."""
        bound = []
        if self.session_driver is not None:
            bound.append("session_lifecycle")
        if self.themes is not None and self.themes.serves(manifest.name):
            bound.append("theme_selection")
        if self.providers is not None and manifest.contributes.providers:
            bound += ["provider_auth", "provider_catalog", "provider_stream"]
        if self.migrations is not None:
            bound.append("migration.adapter.v1")
        return bound
