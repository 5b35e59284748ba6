"""The version policy: which extension API versions there are, what each speaks, and whether bundles of it install.

Selection is exact: a manifest's ``api_version`` names one row, and nothing is ever upgraded, lowered or translated.
Source: octet reference, "Version policy".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from attrs import frozen

CANONICAL_WIRE: Final = "canonical-json-rpc"
FEATURE_WIRE: Final = "legacy-json-rpc"
"""The name the reference gives the feature-negotiated wire."""

Status: TypeAlias = Literal["frozen", "supported", "current"]


@frozen
class VersionPolicy:
    """One row of the policy. ``installable`` says whether a bundle of this version may be installed."""

    api_version: str
    status: Status
    wire: str
    installable: bool

    @property
    def summary(self) -> str:
        """The row in words, such as ``frozen, runs, not installable from a bundle``."""
        bundles = "installable" if self.installable else "not installable"
        return f"{self.status}, runs, {bundles} from a bundle"


POLICY: Final[Mapping[str, VersionPolicy]] = MappingProxyType(
    {
        row.api_version: row
        for row in (
            VersionPolicy("0.1", "frozen", FEATURE_WIRE, installable=False),
            VersionPolicy("0.2", "supported", FEATURE_WIRE, installable=True),
            VersionPolicy("0.3", "supported", CANONICAL_WIRE, installable=True),
            VersionPolicy("0.4", "current", FEATURE_WIRE, installable=True),
        )
    }
)

CURRENT_API_VERSION: Final = next(row.api_version for row in POLICY.values() if row.status == "current")
"""What a newly written manifest declares."""
