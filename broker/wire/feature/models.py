"""The parameters of what an extension sends on the feature-negotiated wire.

The scope of a request (``parent_request_id``, ``resource_owner``) is taken off before these records are read, see
:mod:`broker.wire.feature.scope`. Members are those of the octet notes, section 5; where those name a family of methods
and leave its members open, the parameters are one bounded object (:data:`OPEN`) that the host's service reads.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from broker.wire.feature.values import ChildId, Value
from broker.wire.jsonrpc import ABSENT, Absent, RequestId
from broker.wire.octet.models import ToolDefinition
from broker.wire.octet.schema import Boolean, Integer, Items, Nested, Text, Union, wire

OPEN: Final = Value("MAX_OPERATION_BYTES", only_object=True)

LABEL: Final = Text("MAX_LABEL_BYTES")
SHOWN_TEXT: Final = Text("MAX_SHOWN_TEXT_BYTES")

# -- shown to people or put into a prompt ------------------------------------------------------------------------------


@frozen(kw_only=True)
class ContextItem:
    """One piece of context for the model: what it is called, its text, and where it goes."""

    label: str = field(metadata=wire(LABEL))
    content: str = field(metadata=wire(SHOWN_TEXT))
    placement: str = field(metadata=wire(LABEL))


@frozen(kw_only=True)
class StatusItem:
    """What a surface (``status``, ``header`` or ``footer``) shows."""

    surface: str = field(metadata=wire(Text(choices=("status", "header", "footer"))))
    text: str = field(metadata=wire(SHOWN_TEXT))
    style_role: str = field(metadata=wire(LABEL))
    priority: int = field(metadata=wire(Integer(minimum=-(2**31), maximum=2**31 - 1)))


@frozen(kw_only=True)
class ExtensionNotification:
    """Something the extension wants a person to read. The parameters of ``notification``."""

    level: str = field(metadata=wire(Text("MAX_LABEL_BYTES", empty=False)))
    title: str | Absent = field(default=ABSENT, metadata=wire(LABEL))
    message: str = field(metadata=wire(SHOWN_TEXT))


@frozen(kw_only=True)
class ContextContribution:
    """The parameters of ``context/contribution``."""

    contribution: ContextItem = field(metadata=wire(Nested(ContextItem)))


@frozen(kw_only=True)
class StatusContribution:
    """The parameters of ``status/contribution``."""

    contribution: StatusItem = field(metadata=wire(Nested(StatusItem)))


@frozen(kw_only=True)
class PresentationUpdate:
    """The parameters of ``presentation/update``: everything the extension shows under this parent or owner."""

    snapshot: dict[str, Any] = field(metadata=wire(Value("MAX_PRESENTATION_BYTES", only_object=True)))


# -- questions to the host ---------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Confirmation:
    """The parameters of ``confirmation/request``; ``default`` is the answer that is preselected."""

    prompt: str = field(metadata=wire(Text("MAX_INPUT_PROMPT_BYTES", empty=False)))
    detail: str | Absent = field(default=ABSENT, metadata=wire(SHOWN_TEXT))
    destructive: bool = field(metadata=wire(Boolean()))
    default: bool = field(metadata=wire(Boolean()))


@frozen(kw_only=True)
class InputRequest:
    """The parameters of ``input/request``; the answer of a ``secret`` one is not to be shown or kept."""

    prompt: str = field(metadata=wire(Text("MAX_INPUT_PROMPT_BYTES", empty=False)))
    secret: bool = field(metadata=wire(Boolean()))


@frozen(kw_only=True)
class ArtifactPublication:
    """The parameters of ``artifact/publish``: exactly one of ``data`` (base64) and ``path``."""

    mime_type: str = field(metadata=wire(Text("MAX_LABEL_BYTES", empty=False)))
    size: int = field(metadata=wire(Integer()))
    sha256: str = field(metadata=wire(Text(pattern="[0-9a-f]{64}")))
    data: str | Absent = field(default=ABSENT, metadata=wire(Text()))
    path: str | Absent = field(default=ABSENT, metadata=wire(Text("MAX_PUBLISHED_PATH_BYTES", empty=False)))


@frozen(kw_only=True)
class PolicyRequest:
    """The parameters of ``policy/evaluate``: what is intended, and perhaps the token of an earlier approval of it."""

    intent: dict[str, Any] = field(metadata=wire(Value("MAX_POLICY_INTENT_BYTES", only_object=True)))
    approval_token: str | Absent = field(default=ABSENT, metadata=wire(Text(pattern="[0-9a-f]{64}")))


@frozen(kw_only=True)
class SecretRequest:
    """The parameters of ``secret/get``."""

    name: str = field(metadata=wire(Text("MAX_MANIFEST_IDENTIFIER_BYTES", empty=False)))


@frozen(kw_only=True)
class ToolsRegistration:
    """The parameters of ``tools/register``: tools to add, or to put in place of those of the same name."""

    tools: tuple[ToolDefinition, ...] = field(metadata=wire(Items(Nested(ToolDefinition), "MAX_TOOLS")))


@frozen(kw_only=True)
class ToolsRemoval:
    """The parameters of ``tools/unregister``."""

    names: tuple[str, ...] = field(metadata=wire(Items(Text("MAX_TOOL_NAME_BYTES", empty=False), "MAX_TOOLS")))


@frozen(kw_only=True)
class SessionTarget:
    """The parameters of ``session/switch``."""

    session_id: str = field(metadata=wire(Text("MAX_SESSION_HOOK_ID_BYTES", empty=False)))


@frozen(kw_only=True)
class NoFields:
    """The parameters of a request that has none but its scope."""


# -- what the host answers ---------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ConfirmationAnswer:
    """The result of ``confirmation/request``."""

    confirmed: bool = field(metadata=wire(Boolean()))


@frozen(kw_only=True)
class InputAnswer:
    """The result of ``input/request``; ``null`` is a person who declined."""

    value: str | None = field(metadata=wire(Text("MAX_INPUT_VALUE_BYTES"), nullable=True))


@frozen(kw_only=True)
class ArtifactAnswer:
    """The result of ``artifact/publish``."""

    artifact_id: str = field(metadata=wire(Text("MAX_LABEL_BYTES", empty=False)))


@frozen(kw_only=True)
class PolicyAnswer:
    """The result of ``policy/evaluate``."""

    decision: str = field(metadata=wire(Text(choices=("allow", "ask", "deny"))))
    approval_token: str | Absent = field(default=ABSENT, metadata=wire(Text(pattern="[0-9a-f]{64}")))


@frozen(kw_only=True)
class SecretAnswer:
    """The result of ``secret/get``."""

    value: str = field(metadata=wire(Text("MAX_SECRET_BYTES")))


@frozen(kw_only=True)
class CatalogueAnswer:
    """The result of ``tools/register`` and ``tools/unregister``: the complete catalogue and its revision."""

    revision: int = field(metadata=wire(Integer()))
    tools: tuple[ToolDefinition, ...] = field(metadata=wire(Items(Nested(ToolDefinition), "MAX_TOOLS")))


@frozen(kw_only=True)
class SessionAnswer:
    """The result of the ``session/*`` methods of session control."""

    session_id: str = field(metadata=wire(Text("MAX_SESSION_HOOK_ID_BYTES", empty=False)))


# -- about a request ---------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class StatusProgress:
    """Progress in words."""

    text: str = field(metadata=wire(SHOWN_TEXT))


@frozen(kw_only=True)
class OutputProgress:
    """Output so far."""

    text: str = field(metadata=wire(SHOWN_TEXT))


@frozen(kw_only=True)
class DecorationProgress:
    """How the call is shown meanwhile; needs ``progress_decoration``."""

    decoration: Any = field(metadata=wire(Value("MAX_PROGRESS_BYTES")))


PROGRESS_EVENT: Final = Union(
    "type", {"status": StatusProgress, "output": OutputProgress, "decoration": DecorationProgress}
)


@frozen(kw_only=True)
class ProgressReport:
    """The parameters of ``$/progress``; ``sequence`` rises within one request."""

    request_id: int = field(metadata=wire(Integer()))
    sequence: int = field(metadata=wire(Integer()))
    event: StatusProgress | OutputProgress | DecorationProgress = field(metadata=wire(PROGRESS_EVENT))


@frozen(kw_only=True)
class CancelNotice:
    """The parameters of ``$/cancelRequest``."""

    id: RequestId = field(metadata=wire(ChildId()))
    reason: str | Absent = field(default=ABSENT, metadata=wire(Text("MAX_REASON_BYTES")))
