"""What a host may decide about its sessions; the defaults are the bounds of :mod:`broker.limits`."""

from __future__ import annotations

from attrs import field, frozen, validators

from broker.limits import (
    CANCEL_GRACE_MS,
    EXIT_GRACE_MS,
    MAX_CONCURRENT_REQUESTS,
    MAX_FRAME_BYTES,
    MAX_RESTARTS,
    MAX_TOOLS,
    RELOAD_DRAIN_MS,
    REQUEST_TIMEOUT_MS,
    RESTART_BASE_MS,
    RESTART_CAP_MS,
    RESTART_RESET_MS,
    SESSION_HOOK_TIMEOUT_MS,
    SHUTDOWN_TIMEOUT_MS,
    STREAM_END_GRACE_MS,
)


def _up_to(maximum: int) -> object:
    return [validators.instance_of(int), validators.ge(1), validators.le(maximum)]


@frozen(kw_only=True)
class HostSettings:
    """Settings of a host; durations are milliseconds. ``cancel_grace_ms=None`` never ends a process for not answering.

    ``octet_version`` is what the host reports as its own version, and what ``requires_octet`` is checked against.
    """

    octet_version: str = "0.8.0"
    max_frame_bytes: int = field(default=MAX_FRAME_BYTES, validator=_up_to(MAX_FRAME_BYTES))
    max_concurrent_requests: int = field(default=MAX_CONCURRENT_REQUESTS, validator=_up_to(MAX_CONCURRENT_REQUESTS))
    max_tools: int = field(default=MAX_TOOLS, validator=_up_to(MAX_TOOLS))
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    cancel_grace_ms: int | None = CANCEL_GRACE_MS
    hook_timeout_ms: int = SESSION_HOOK_TIMEOUT_MS
    shutdown_timeout_ms: int = SHUTDOWN_TIMEOUT_MS
    exit_grace_ms: int = EXIT_GRACE_MS
    stream_end_grace_ms: int = STREAM_END_GRACE_MS
    reload_drain_ms: int = RELOAD_DRAIN_MS
    restart: bool = True
    max_restarts: int = MAX_RESTARTS
    restart_base_ms: int = RESTART_BASE_MS
    restart_cap_ms: int = RESTART_CAP_MS
    restart_reset_ms: int = RESTART_RESET_MS
