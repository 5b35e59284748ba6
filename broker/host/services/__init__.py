"""What a host may bind to the optional services of extensions, and how each of them is served. Sans-IO."""

from broker.host.services.asking import Answer, Principal
from broker.host.services.bindings import HostServices
from broker.host.services.migration import DetectedSetup, MigrationAdapter, SourceAccess
from broker.host.services.provider_auth import AuthPolicy, AuthRequest
from broker.host.services.provider_stream import ProviderStream
from broker.host.services.registry import ProviderRegistry, RegisteredProvider
from broker.host.services.session_control import SessionControl, SessionDriver
from broker.host.services.themes import ThemeCatalogue, ThemeChoice

__all__ = [
    "Answer",
    "AuthPolicy",
    "AuthRequest",
    "DetectedSetup",
    "HostServices",
    "MigrationAdapter",
    "Principal",
    "ProviderRegistry",
    "ProviderStream",
    "RegisteredProvider",
    "SessionControl",
    "SessionDriver",
    "SourceAccess",
    "ThemeCatalogue",
    "ThemeChoice",
]
