"""Finding manifests and executables on disk, without trusting what lies there.

A manifest is read through one descriptor that was opened without following a final symbolic link and without waiting,
so a FIFO cannot block the host and a file swapped after the check is never the one read. Source: octet wire notes,
sections 1 ("File") and 2.6 ("Spawn").
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from broker.adapters.files import read_bounded
from broker.errors import SetupError
from broker.limits import MAX_CONFIG_BYTES, MAX_MANIFEST_BYTES
from broker.wire.octet.manifest import HOST_VERSION, Manifest, parse_manifest
from broker.wire.odek.config import ServerSet, parse_servers
from broker.wire.odek.config import Source as ConfigSource

MANIFEST_NAME: Final = "extension.toml"


@frozen
class Notice:
    """Something about a found manifest that does not stop it from being used: where, and what."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@frozen
class Discovery:
    """What :func:`discover` found: usable manifests in order, notices, and the manifests that could not be used."""

    manifests: tuple[Manifest, ...] = ()
    warnings: tuple[Notice, ...] = ()
    errors: tuple[SetupError, ...] = ()


def discover(paths: Iterable[str | os.PathLike[str]], *, host_version: str = HOST_VERSION) -> Discovery:
    """Find and load every manifest under ``paths``, in order. One bad manifest never hides the others.

    Of several with one name the first is used; the later ones are "shadowed" warnings. A directory named otherwise than
    its extension is a warning too. Raises nothing: a path that cannot be used is in ``errors``.
    """
    manifests: dict[str, Manifest] = {}
    warnings: list[Notice] = []
    errors: list[SetupError] = []
    for path in paths:
        try:
            found = find_manifests(path)
        except SetupError as error:
            errors.append(error)
            continue
        for file in found:
            try:
                manifest = load_manifest(file, host_version=host_version)
            except SetupError as error:
                errors.append(error)
                continue
            warnings += directory_warnings(manifest)
            first = manifests.setdefault(manifest.name, manifest)
            if first is not manifest and first.path != manifest.path:
                warnings.append(Notice(manifest.path, f"extension {manifest.name} is shadowed by {first.path}"))
    return Discovery(tuple(manifests.values()), tuple(warnings), tuple(errors))


def directory_warnings(manifest: Manifest) -> list[Notice]:
    """A warning when the manifest's directory is not named as the extension is."""
    directory = Path(manifest.path).parent.name
    if directory == manifest.name:
        return []
    return [Notice(manifest.path, f"directory {directory!r} is not named after its extension {manifest.name!r}")]


def find_manifests(path: str | os.PathLike[str]) -> list[Path]:
    """The manifest files ``path`` stands for, as absolute paths.

    ``path`` is a manifest, an extension's directory, or a folder of such directories (in the order of their names, one
    level deep). Raises :class:`~broker.errors.SetupError` naming ``path`` when there is nothing to be found.
    """
    given = Path(os.path.abspath(path))
    # os.path answers "no" where Path would raise: for a directory that may not be entered, or a NUL in a name.
    if not os.path.lexists(given):
        raise SetupError(f"{given} does not exist", path=str(given))
    if not os.path.isdir(given):
        return [given]
    if os.path.lexists(given / MANIFEST_NAME):
        return [given / MANIFEST_NAME]
    try:
        children = sorted(given.iterdir())
    except OSError as error:
        raise SetupError(f"{given} cannot be listed: {error.strerror}", path=str(given)) from error
    found = [child / MANIFEST_NAME for child in children if os.path.lexists(child / MANIFEST_NAME)]
    if not found:
        problem = f"{given} holds no {MANIFEST_NAME}, and neither does a directory in it"
        config = next(filter(is_server_config, children), None)
        if config is not None:
            problem += f"; if you mean an MCP server, give its file: {config}"
        raise SetupError(problem, path=str(given))
    return found


def load_manifest(path: str | os.PathLike[str], *, host_version: str = HOST_VERSION) -> Manifest:
    """Read one manifest file. Its ``path`` becomes absolute, links in its directories unresolved.

    Raises :class:`~broker.errors.SetupError` when it is not a readable regular file (a symbolic link, a FIFO, a device
    or a directory is not), and :class:`~broker.errors.ManifestError` for what it holds, an over-long file included.
    """
    file = os.path.abspath(path)
    return parse_manifest(read_bounded(file, MAX_MANIFEST_BYTES), path=file, host_version=host_version)


def is_server_config(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a configuration of MCP servers (``*.json``) rather than an extension."""
    return os.fspath(path).endswith(".json")


def load_servers(path: str | os.PathLike[str], *, source: ConfigSource = "operator") -> ServerSet:
    """Read ``mcp_servers`` of one configuration file, as the operator's or as a project's.

    Raises :class:`~broker.errors.SetupError` when it is not a readable regular file, and
    :class:`~broker.errors.ConfigError` for what it holds, an over-long file included.
    """
    file = os.path.abspath(path)
    return parse_servers(read_bounded(file, MAX_CONFIG_BYTES), source=source, path=file)


def resolve_entrypoint(
    manifest: Manifest, workspace: str | os.PathLike[str], *, host_environ: Mapping[str, str] | None = None
) -> list[str]:
    """The argument vector that starts ``manifest``'s process in ``workspace``: an absolute program, then ``args``.

    An absolute command is taken as it is, a relative one beside the manifest if there is such a file, and a bare name
    otherwise from ``PATH``: the manifest's own, else that of ``host_environ`` (``os.environ`` when left out). Relative
    directories in ``PATH`` are skipped, as they would mean another place in another working directory. Raises
    :class:`~broker.errors.SetupError` naming what is missing, not a regular file or not executable.
    """
    if not os.path.isdir(workspace):
        raise SetupError(
            f"workspace {os.fspath(workspace)} is not a directory", extension=manifest.name, path=os.fspath(workspace)
        )
    command = manifest.entrypoint.command
    beside = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(manifest.path)), command))
    if os.path.isabs(command) or os.path.isfile(beside):
        program: str | None = command if os.path.isabs(command) else beside
    else:
        environ = os.environ if host_environ is None else host_environ
        search = manifest.entrypoint.env.get("PATH", environ.get("PATH", os.defpath))
        program = None if os.sep in command else _search(command, search)
    if program is None or not os.path.lexists(program):
        where = "beside its manifest" if os.sep in command else "beside its manifest or on PATH"
        raise SetupError(
            f"entrypoint {command!r} of {manifest.name} does not exist"
            + ("" if os.path.isabs(command) else f" {where}"),
            extension=manifest.name,
            path=program or beside,
        )
    if not _is_program(program):
        problem = "is not executable; chmod +x makes it so" if os.path.isfile(program) else "is not a regular file"
        raise SetupError(f"entrypoint {program} of {manifest.name} {problem}", extension=manifest.name, path=program)
    return [program, *manifest.entrypoint.args]


def _search(name: str, search: str) -> str | None:
    for directory in search.split(os.pathsep):
        candidate = os.path.join(directory, name)
        if os.path.isabs(directory) and _is_program(candidate):
            return candidate
    return None


def _is_program(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)
