"""The names an author gives: checked where they are given, with the one that may have been meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from broker.errors import BrokerError, UsageError
from broker.extension.declaration import API_VERSIONS
from broker.limits import MAX_CONCURRENT_REQUESTS, MAX_EXTENSION_NAME_BYTES
from broker.wire.feature.features import FEATURES, REQUIRED_FEATURES
from broker.wire.octet.contract import BINDABLE
from broker.wire.octet.semver import Version
from broker.wire.suggestion import suggestion

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)


def check_identity(name: Any, version: Any, api: Any, concurrency: Any) -> None:
    """Raise :class:`~broker.errors.UsageError` for what no extension can be."""
    if api not in API_VERSIONS:
        hint = " (0.1 and 0.2 are spoken by hosts, not by this kit)" if api in ("0.1", "0.2") else ""
        raise UsageError(f'api must be "0.3" or "0.4", not {api!a:.20}{hint}', path="api")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_EXTENSION_NAME_BYTES:
        raise UsageError(
            f"an extension's name is [a-z][a-z0-9-]*, at most {MAX_EXTENSION_NAME_BYTES} bytes, not {name!a:.80}",
            path="name",
        )
    try:
        Version.parse(version if isinstance(version, str) else repr(version))
    except BrokerError as error:
        raise UsageError(f"version: {error}; write something like 1.0.0", path="version") from None
    if type(concurrency) is not int or not 1 <= concurrency <= MAX_CONCURRENT_REQUESTS:
        raise UsageError(f"concurrency is 1 to {MAX_CONCURRENT_REQUESTS}, not {concurrency!a:.80}", path="concurrency")


def check_version(what: str, api: str, needed: str, problem: str = "has none") -> None:
    """Raise :class:`~broker.errors.UsageError` for what only the other version has."""
    if api != needed:
        raise UsageError(f'{what}: API {api} {problem}; use Extension(..., api="{needed}")')


def check_services(api: str, uses: Iterable[str]) -> tuple[str, ...]:
    """``uses``, if every name is an optional capability (0.3) or feature (0.4)."""
    if isinstance(uses, str):
        raise UsageError(f'uses is a list of names: uses=["{uses}"]', path="uses")
    names = tuple(dict.fromkeys(uses))
    known = sorted(BINDABLE) if api == "0.3" else [name for name in FEATURES if name not in REQUIRED_FEATURES]
    for name in names:
        if name not in known:
            kind = "capability" if api == "0.3" else "feature"
            raise UsageError(f"uses: {name!a:.80} is no {kind} of API {api}{suggestion(name, known)}", path="uses")
    return names
