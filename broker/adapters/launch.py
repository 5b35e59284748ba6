"""Starts the process a link stands for: which program, in which directory, with which environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from broker.adapters.discovery import resolve_entrypoint
from broker.adapters.process import Child, Guard, build_environment, spawn
from broker.errors import UsageError
from broker.host import Generation, ProcessLink


def launch(link: ProcessLink, *, environ: Mapping[str, str], scratch: Path, guard: Guard) -> Child:
    """Start the link's process; blocks as long as that takes. ``scratch`` holds a directory for each generation.

    Raises :class:`~broker.errors.SetupError` for what is missing or not executable, ``OSError`` for the scratch
    directory.
    """
    if isinstance(link, Generation):
        return _launch_extension(link, environ, scratch, guard)
    raise UsageError(f"nothing is known to start for {link.name}")


def _launch_extension(link: Generation, environ: Mapping[str, str], scratch: Path, guard: Guard) -> Child:
    manifest, workspace = link.manifest, link.session.workspace
    argv = resolve_entrypoint(manifest, workspace, host_environ=environ)
    own = scratch / f"{link.extension.instance_id}-{link.number}"
    own.mkdir(mode=0o700)
    env = build_environment(
        manifest, host_environ=environ, workspace=workspace, scratch=own, manifest_path=manifest.path
    )
    return spawn(argv, cwd=os.fspath(workspace), env=env, guard=guard)
