"""What a host may decide about its sessions; the defaults are the bounds of :mod:`broker.limits`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Attribute, field, frozen

from broker.errors import UsageError
from broker.limits import (
    CANCEL_GRACE_MS,
    EXIT_GRACE_MS,
    MAX_CONCURRENT_REQUESTS,
    MAX_FRAME_BYTES,
    MAX_PORTABLE_INTEGER,
    MAX_RESTARTS,
    MAX_TOOLS,
    MIGRATION_TIMEOUT_MS,
    PROVIDER_STREAM_FULL_MS,
    PROVIDER_STREAM_IDLE_MS,
    PROVIDER_STREAM_TOTAL_MS,
    RELOAD_DRAIN_MS,
    REQUEST_TIMEOUT_MS,
    RESTART_BASE_MS,
    RESTART_CAP_MS,
    RESTART_RESET_MS,
    SERVER_EOF_GRACE_MS,
    SERVER_TERM_GRACE_MS,
    SESSION_HOOK_TIMEOUT_MS,
    SHUTDOWN_TIMEOUT_MS,
    STREAM_END_GRACE_MS,
)
from broker.wire.octet.manifest_model import HOST_VERSION


def _between(minimum: int, maximum: int) -> Callable[[Any, Attribute[int], int], None]:
    def check(_: Any, attribute: Attribute[int], value: int) -> None:
        if type(value) is not int or not minimum <= value <= maximum:
            raise UsageError(
                f"{attribute.name}: expected an integer from {minimum} to {maximum}, got {value!a:.80}",
                path=attribute.name,
                maximum=maximum,
            )

    return check


_DURATION = _between(1, MAX_PORTABLE_INTEGER)


def _duration_or_none(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None:
        _DURATION(instance, attribute, value)


@frozen(kw_only=True)
class HostSettings:
    """Settings of a host; durations are milliseconds. ``cancel_grace_ms=None`` never ends a process for not answering.

    ``octet_version`` is what the host reports as its own version, and what ``requires_octet`` is held against when
    a host reads a manifest.
    """

    octet_version: str = HOST_VERSION
    max_frame_bytes: int = field(default=MAX_FRAME_BYTES, validator=_between(1, MAX_FRAME_BYTES))
    max_concurrent_requests: int = field(
        default=MAX_CONCURRENT_REQUESTS, validator=_between(1, MAX_CONCURRENT_REQUESTS)
    )
    max_tools: int = field(default=MAX_TOOLS, validator=_between(1, MAX_TOOLS))
    request_timeout_ms: int = field(default=REQUEST_TIMEOUT_MS, validator=_DURATION)
    cancel_grace_ms: int | None = field(default=CANCEL_GRACE_MS, validator=_duration_or_none)
    hook_timeout_ms: int = field(default=SESSION_HOOK_TIMEOUT_MS, validator=_DURATION)
    shutdown_timeout_ms: int = field(default=SHUTDOWN_TIMEOUT_MS, validator=_DURATION)
    exit_grace_ms: int = field(default=EXIT_GRACE_MS, validator=_DURATION)
    stream_end_grace_ms: int = field(default=STREAM_END_GRACE_MS, validator=_DURATION)
    server_eof_grace_ms: int = field(default=SERVER_EOF_GRACE_MS, validator=_DURATION)
    server_term_grace_ms: int = field(default=SERVER_TERM_GRACE_MS, validator=_DURATION)
    reload_drain_ms: int = field(default=RELOAD_DRAIN_MS, validator=_DURATION)
    migration_timeout_ms: int = field(default=MIGRATION_TIMEOUT_MS, validator=_DURATION)
    stream_idle_ms: int = field(default=PROVIDER_STREAM_IDLE_MS, validator=_DURATION)
    stream_total_ms: int = field(default=PROVIDER_STREAM_TOTAL_MS, validator=_DURATION)
    stream_full_ms: int = field(default=PROVIDER_STREAM_FULL_MS, validator=_between(0, MAX_PORTABLE_INTEGER))
    restart: bool = True
    max_restarts: int = field(default=MAX_RESTARTS, validator=_between(0, MAX_PORTABLE_INTEGER))
    restart_base_ms: int = field(default=RESTART_BASE_MS, validator=_DURATION)
    restart_cap_ms: int = field(default=RESTART_CAP_MS, validator=_DURATION)
    restart_reset_ms: int = field(default=RESTART_RESET_MS, validator=_DURATION)
