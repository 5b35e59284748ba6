"""Whether a bundle of an extension may be installed, and the text of a new manifest.

Source: octet reference, "Version policy"; octet notes, section 1 (``requires_octet`` of a bundle is exact).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from broker.errors import SetupError
from broker.wire.octet.manifest import parse_manifest
from broker.wire.octet.manifest_model import HOST_VERSION, Manifest
from broker.wire.versions import CURRENT_API_VERSION

_EXACT: Final = re.compile(r"=\s*[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?")


def check_installable(manifest: Manifest) -> None:
    """Raise :class:`~broker.errors.SetupError` unless a bundle of this extension may be installed.

    0.1 is never installed from a bundle; the others need ``requires_octet`` with one exact version, such as ``=0.8.0``.
    """
    if not manifest.policy.installable:
        raise SetupError(
            f"{manifest.name}: API {manifest.api_version} is {manifest.policy.status}; "
            "bundles of it cannot be installed",
            name="version_mismatch",
            extension=manifest.name,
            path="api_version",
        )
    if manifest.requires_octet is None or _EXACT.fullmatch(manifest.requires_octet.strip()) is None:
        raise SetupError(
            f'{manifest.name}: a bundle needs requires_octet with one exact version, such as "={HOST_VERSION}"',
            name="invalid_params",
            extension=manifest.name,
            path="requires_octet",
        )


def new_manifest(name: str, command: str, *, version: str = "0.1.0", tools: Sequence[str] = ()) -> str:
    """The text of a new ``extension.toml``: it declares the current API version.

    Raises :class:`~broker.errors.ManifestError` for what no manifest may hold.
    """
    text = "\n".join(
        (
            f"name = {_quoted(name)}",
            f"version = {_quoted(version)}",
            f"api_version = {_quoted(CURRENT_API_VERSION)}",
            "",
            "[entrypoint]",
            f"command = {_quoted(command)}",
            "",
            "[contributes]",
            f"tools = [{', '.join(map(_quoted, tools))}]",
            "",
        )
    )
    parse_manifest(text.encode("utf-8", "surrogatepass"), path="extension.toml")
    return text


def _quoted(text: str) -> str:
    """``text`` as a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'
