"""The records of ``session/create``, ``/fork``, ``/switch`` and ``/reload``, and of ``theme/select`` (octet 0.3).

Both services are asked for by the extension and decided by the host. Source: octet reference, models
``Session*Params``, ``SessionLifecycleResult``, ``ThemeSelect*``; octet notes, sections 4.3 and 4.7.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from attrs import field, frozen

from broker.wire.jsonrpc import ABSENT, Absent
from broker.wire.octet.schema import Text, wire

_SESSION_ID: Final = Text("MAX_SESSION_ID_BYTES", empty=False)


@frozen(kw_only=True)
class SessionCreateParams:
    """The parameters of ``session/create``: none. The new session is durable, and is not switched to."""


@frozen(kw_only=True)
class SessionForkParams:
    """The parameters of ``session/fork``: none. The active session is copied at its durable head, without a switch."""


@frozen(kw_only=True)
class SessionSwitchParams:
    """The parameters of ``session/switch``: which session of the active workspace is to be the active one."""

    session_id: str = field(metadata=wire(_SESSION_ID))


@frozen(kw_only=True)
class SessionReloadParams:
    """The parameters of ``session/reload``: none. The active session is read from disk again."""


SessionChange: TypeAlias = SessionCreateParams | SessionForkParams | SessionSwitchParams | SessionReloadParams
"""What an extension may ask of the host's sessions."""


@frozen(kw_only=True)
class SessionLifecycleResult:
    """The result of each of the four: the session that was made, switched to or read again."""

    session_id: str = field(metadata=wire(_SESSION_ID))


THEME_SCOPES: Final = ("extension",)
THEME_STATUSES: Final = ("selected", "denied", "unavailable")
# fmt: off
THEME_ROLES: Final = (
    "accent", "border", "diff_added", "diff_context", "diff_header", "diff_hunk", "diff_removed", "dim", "error",
    "foreground", "md_code", "md_code_block", "md_emphasis", "md_heading", "md_link", "md_list_bullet", "md_quote",
    "md_strong", "muted", "success", "syntax_comment", "syntax_function", "syntax_keyword", "syntax_number",
    "syntax_operator", "syntax_punctuation", "syntax_string", "syntax_type", "syntax_variable", "warning",
)
# fmt: on

_THEME_ID: Final = Text("MAX_THEME_ID_BYTES", empty=False)


@frozen(kw_only=True)
class ThemeSelectParams:
    """The parameters of ``theme/select``. ``scope`` has one value, so that a selection reaches no further."""

    namespace: str = field(metadata=wire(Text("MAX_THEME_NAMESPACE_BYTES", empty=False)))
    theme_id: str = field(metadata=wire(_THEME_ID))
    role: str = field(metadata=wire(Text(choices=THEME_ROLES)))
    scope: str = field(metadata=wire(Text(choices=THEME_SCOPES)))


@frozen(kw_only=True)
class ThemeSelectResult:
    """The host's decision; ``theme_id`` is the theme it resolved the request to."""

    status: str = field(metadata=wire(Text(choices=THEME_STATUSES)))
    theme_id: str | Absent = field(default=ABSENT, metadata=wire(_THEME_ID))
    reason: str | Absent = field(default=ABSENT, metadata=wire(Text("MAX_REASON_BYTES")))
