"""Starts the process a link stands for: which program, in which directory, with which environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from broker.adapters.discovery import resolve_entrypoint
from broker.adapters.process import Child, Guard, build_environment, spawn
from broker.errors import SetupError, UsageError
from broker.host import ExtensionProcess, McpServer, ProcessLink
from broker.wire.odek.environment import child_environment


def launch(link: ProcessLink, *, environ: Mapping[str, str], scratch: Path, guard: Guard) -> Child:
    """Start the link's process; blocks as long as that takes. ``scratch`` holds a directory for each generation.

    Raises :class:`~broker.errors.SetupError` for what is missing or not executable, ``OSError`` for the scratch
    directory.
    """
    if isinstance(link, ExtensionProcess):
        return _launch_extension(link, environ, scratch, guard)
    if isinstance(link, McpServer):
        return _launch_server(link, environ, guard)
    raise UsageError(f"nothing is known to start for {link.name}")


def scratch_directory(link: ExtensionProcess, scratch: Path) -> Path:
    """The directory below ``scratch`` that belongs to one generation alone."""
    return scratch / f"{link.extension.instance_id}-{link.number}"


def _launch_server(link: McpServer, environ: Mapping[str, str], guard: Guard) -> Child:
    config, workspace = link.config, link.session.workspace
    environment = child_environment(config, environ)
    for warning in environment.warnings:
        link.warn(warning)
    # Found on the host's own PATH: what a configuration says about PATH is for the server, not for finding it.
    program = config.command
    if os.sep not in program:
        found = shutil.which(program, path=environ.get("PATH", os.defpath))
        if found is None:
            raise SetupError(
                f"server {config.name}: {program!a:.200} is not on PATH", extension=config.name, path=program
            )
        program = found
    else:
        program = os.path.join(workspace, program)
    return spawn([program, *config.args], cwd=workspace, env=environment.variables, guard=guard)


def _launch_extension(link: ExtensionProcess, environ: Mapping[str, str], scratch: Path, guard: Guard) -> Child:
    manifest, workspace = link.manifest, link.session.workspace
    argv = resolve_entrypoint(manifest, workspace, host_environ=environ)
    own = scratch_directory(link, scratch)
    own.mkdir(mode=0o700)
    link.scratch = os.fspath(own)
    env = build_environment(
        manifest, host_environ=environ, workspace=workspace, scratch=own, manifest_path=manifest.path
    )
    return spawn(argv, cwd=os.fspath(workspace), env=env, guard=guard)
