"""``broker check``: every fault of every manifest and server configuration, with its key path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from broker.adapters.discovery import (
    directory_warnings,
    find_manifests,
    is_server_config,
    load_manifest,
    load_servers,
    resolve_entrypoint,
)
from broker.cli.exit_codes import OK, SETUP
from broker.errors import SetupError
from broker.wire.octet.bundle import check_installable
from broker.wire.octet.manifest import Manifest
from broker.wire.quoting import escape


def check(paths: Sequence[Path]) -> int:
    """Check all manifests and configurations under ``paths``; one line for each fault, warning or sound entry."""
    status = OK
    for path in paths:
        if is_server_config(path):
            if not _check_servers(path):
                status = SETUP
            continue
        try:
            files = find_manifests(path)
        except SetupError as error:
            print(escape(str(error)))
            status = SETUP
            continue
        for file in files:
            if not _check_file(file):
                status = SETUP
    return status


def _check_servers(path: Path) -> bool:
    shown = escape(str(path))
    try:
        found = load_servers(path)
    except SetupError as error:
        for fault in error.faults or (error,):
            print(f"{shown}: {escape(str(fault))}")
        return False
    for warning in found.warnings:
        print(f"warning: {shown}: {escape(warning)}")
    for name, reason in found.refused.items():
        print(f"{shown}: server {escape(name)}: {escape(reason)}")
    for server in found.servers:
        state = "" if server.enabled else ", not enabled"
        print(f"{shown}: ok: server {server.name}: {escape(server.command)}{state}")
    return not found.refused


def _standing(manifest: Manifest) -> str:
    """What the version policy says of the manifest, and what a bundle of it still lacks."""
    summary = manifest.policy.summary
    if not manifest.policy.installable:
        return summary
    try:
        check_installable(manifest)
    except SetupError as error:
        return f"{summary} once {error.path} is one exact version"
    return summary


def _check_file(file: Path) -> bool:
    shown = escape(str(file))
    try:
        manifest = load_manifest(file)
    except SetupError as error:
        for fault in error.faults or (error,):
            print(f"{shown}: {escape(str(fault))}")
        return False
    for warning in directory_warnings(manifest):
        print(f"warning: {escape(str(warning))}")
    try:
        resolve_entrypoint(manifest, os.path.dirname(os.path.abspath(file)))
    except SetupError as error:
        # The manifest is sound; here its program could not be started.
        print(f"warning: {shown}: {escape(str(error))}")
    about = f"{manifest.name} {manifest.version}, extension API {manifest.api_version}, {manifest.wire}"
    print(f"{shown}: ok: {about}: {_standing(manifest)}")
    return True
