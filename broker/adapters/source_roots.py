"""Directories that migration adapters may read, and what is in them: a :class:`broker.host.SourceAccess`.

Nothing is opened: a survey looks at names, kinds, sizes and times. Source: octet notes, section 4.8.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import TypeAlias

from attrs import frozen

from broker.errors import ResultError, SetupError
from broker.limits import MAX_MIGRATION_PATH_BYTES
from broker.wire.quoting import escape, quote


@frozen
class SourceEntry:
    """One file or directory of a setup, as it was when it was looked at."""

    path: str
    mode: int
    inode: int
    size: int
    modified_ns: int


Survey: TypeAlias = tuple[SourceEntry, ...]


class SourceRoots:
    """Lets adapters read ``allowed`` directories and everything below them; without any, every directory."""

    def __init__(self, *allowed: str | os.PathLike[str]) -> None:
        self._allowed = tuple(os.path.realpath(path) for path in allowed)

    def check_root(self, source_root: str) -> str:
        """``source_root`` if it is absolute, canonical, an existing directory, no link, and allowed."""
        if type(source_root) is not str or not os.path.isabs(source_root) or "\0" in source_root:
            raise SetupError(f"source root {source_root!a:.140} is not an absolute path", name="invalid_params")
        try:
            size = len(source_root.encode())
        except UnicodeEncodeError:
            detail = f"source root {source_root!a:.140} has no UTF-8 form, and no adapter could be told of it"
            raise SetupError(detail, path="source_root", name="invalid_params") from None
        if size > MAX_MIGRATION_PATH_BYTES:
            raise SetupError(
                "source root is too long",
                name="resource_exhausted",
                limit="MAX_MIGRATION_PATH_BYTES",
                observed=size,
                maximum=MAX_MIGRATION_PATH_BYTES,
            )
        shown = escape(source_root)
        try:
            mode = os.lstat(source_root).st_mode
        except OSError as error:
            raise SetupError(f"source root {shown}: {error.strerror}", path=source_root) from error
        if not stat.S_ISDIR(mode):
            kind = "a link" if stat.S_ISLNK(mode) else "no directory"
            raise SetupError(f"source root {shown} is {kind}", path=source_root, name="invalid_params")
        if os.path.realpath(source_root) != source_root:
            raise SetupError(
                f"source root {shown} is not canonical; it leads to {escape(os.path.realpath(source_root))}",
                path=source_root,
                name="invalid_params",
            )
        if self._allowed and not any(_is_below(source_root, allowed) for allowed in self._allowed):
            raise SetupError(
                f"source root {shown} is not among the directories that may be read",
                path=source_root,
                name="capability_mismatch",
            )
        return source_root

    def survey(self, source_root: str, paths: Sequence[str]) -> Survey:
        """What each of ``paths`` is now. No link may lead on the way to it, and only files and directories count."""
        return tuple(_look(source_root, path) for path in paths)


def _look(root: str, path: str) -> SourceEntry:
    full = os.path.join(root, path)
    try:
        if os.path.realpath(full) != full:
            raise ResultError(f"config path {quote(path)} goes over a link", path="config_paths")
        found = os.lstat(full)
    except OSError as error:
        raise ResultError(f"config path {quote(path)}: {error.strerror}", path="config_paths") from error
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise ResultError(f"config path {quote(path)} is neither a file nor a directory", path="config_paths")
    return SourceEntry(path, found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
