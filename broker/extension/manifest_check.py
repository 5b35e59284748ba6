"""Whether an ``extension.toml`` and the code say the same."""

from __future__ import annotations

import os
from pathlib import Path

from broker.errors import Fault, ManifestError
from broker.extension.declaration import Declaration
from broker.limits import MAX_MANIFEST_BYTES
from broker.wire.octet.manifest import Manifest, parse_manifest


def check_manifest(declaration: Declaration, path: str | os.PathLike[str]) -> Manifest:
    """The manifest at ``path`` (the file, or its directory), if the code is what it promises.

    Raises :class:`~broker.errors.ManifestError` with every fault: of the file itself, or else of what disagrees.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "extension.toml"
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"{file}: {error.strerror or error}", path=str(file)) from None
    manifest = parse_manifest(data, path=str(file))
    faults = [*_value_faults(declaration, manifest), *_list_faults(declaration, manifest)]
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise ManifestError(f"{file} and the code disagree:{lines}", path=str(file), faults=faults)
    return manifest


def _value_faults(mine: Declaration, manifest: Manifest) -> list[Fault]:
    return [
        Fault(key, f'is "{theirs}", the code says "{own}"')
        for key, theirs, own in (
            ("name", manifest.name, mine.name),
            ("version", manifest.version, mine.version),
            ("api_version", manifest.api_version, mine.api),
        )
        if theirs != own
    ]


def _list_faults(mine: Declaration, manifest: Manifest) -> list[Fault]:
    given = manifest.contributes
    faults = []
    for key, theirs, own in (
        ("tools", given.tools, tuple(mine.tools)),
        ("commands", given.commands, tuple(mine.commands)),
        ("hooks", given.hooks, mine.hook_names),
        ("ui", given.ui, tuple(mine.ui)),
        ("tool_renderers", given.tool_renderers, tuple(mine.renders)),
    ):
        path = f"contributes.{key}"
        faults += [Fault(path, f'has "{name}", the code does not') for name in theirs if name not in own]
        faults += [Fault(path, f'lacks "{name}", which the code has') for name in own if name not in theirs]
    for key, declared, used in (("context", given.context, mine.context), ("menu", given.menu, mine.menu)):
        if declared is not used:
            faults.append(Fault(f"contributes.{key}", f"is {str(declared).lower()}, the code says {str(used).lower()}"))
    if mine.api == "0.3" and not given.providers and any(name.startswith("provider_") for name in mine.uses):
        faults.append(Fault("contributes.providers", "is false, the code uses provider services"))
    return faults
