"""Host and session: joins the bus with the wire; principals, generations, ids. Sans-IO: a driver does the IO."""

from broker.host.approval import Approve
from broker.host.artifacts import ArtifactFiles, ArtifactRegistry, ArtifactWindow
from broker.host.driver import Driver, Process
from broker.host.extension import Call, Extension
from broker.host.extension_process import ExtensionProcess
from broker.host.feature.generation import FeatureGeneration
from broker.host.feature.services import FeatureServices
from broker.host.generation import Generation
from broker.host.host import Host
from broker.host.link import ProcessLink
from broker.host.mcp_bridge import McpBridge
from broker.host.mcp_call import McpCall
from broker.host.mcp_server import McpServer
from broker.host.notices import CatalogueChanged, Diagnostic, Exited, Health, HealthChanged, Notice, Started
from broker.host.outcome import Outcome
from broker.host.services import (
    Answer,
    AuthPolicy,
    AuthRequest,
    DetectedSetup,
    HostServices,
    MigrationAdapter,
    Principal,
    ProviderRegistry,
    ProviderStream,
    RegisteredProvider,
    SessionControl,
    SessionDriver,
    SourceAccess,
    ThemeCatalogue,
    ThemeChoice,
)
from broker.host.session import Session
from broker.host.settings import HostSettings
from broker.host.trust import Grant, TrustPolicy, Verdict
from broker.host.work import Work

__all__ = [
    "Answer",
    "Approve",
    "ArtifactFiles",
    "ArtifactRegistry",
    "ArtifactWindow",
    "AuthPolicy",
    "AuthRequest",
    "Call",
    "CatalogueChanged",
    "DetectedSetup",
    "Diagnostic",
    "Driver",
    "Exited",
    "Extension",
    "ExtensionProcess",
    "FeatureGeneration",
    "FeatureServices",
    "Generation",
    "Grant",
    "Health",
    "HealthChanged",
    "Host",
    "HostServices",
    "HostSettings",
    "McpBridge",
    "McpCall",
    "McpServer",
    "MigrationAdapter",
    "Notice",
    "Outcome",
    "Principal",
    "Process",
    "ProcessLink",
    "ProviderRegistry",
    "ProviderStream",
    "RegisteredProvider",
    "Session",
    "SessionControl",
    "SessionDriver",
    "SourceAccess",
    "Started",
    "ThemeCatalogue",
    "ThemeChoice",
    "TrustPolicy",
    "Verdict",
    "Work",
]
