"""What a request of an extension is made for: the host request it serves, and who owns what it touches.

From 0.2 on an operation-scoped request carries ``parent_request_id``, the integer id of a host request that is still
open, and perhaps ``resource_owner``, which must be exactly the session, instance and generation that sends it. An
owner is thereby never another process, nor an earlier generation of the same one. Source: octet notes, section 5.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from broker.errors import Fault, InvalidParamsError
from broker.wire.feature.methods import Scope
from broker.wire.jsonrpc import ABSENT, Absent
from broker.wire.octet.schema import Integer, Nested, Text, check, refuse, wire

PARENT: Final = "parent_request_id"
OWNER: Final = "resource_owner"


@frozen(kw_only=True)
class ResourceOwner:
    """Who owns something that outlives a request: one generation of one extension in one session."""

    session_id: str = field(metadata=wire(Text("MAX_SESSION_HOOK_ID_BYTES", empty=False)))
    extension_instance_id: str = field(metadata=wire(Text("MAX_SESSION_HOOK_ID_BYTES", empty=False)))
    process_generation: int = field(metadata=wire(Integer(minimum=1)))


@frozen
class Claim:
    """The scope a request claims, read but not yet judged, and its parameters without it."""

    parent: int | None
    owner: ResourceOwner | None
    fields: dict[str, Any]


_PARENT: Final = Integer()
_OWNER: Final = Nested(ResourceOwner)


def read_scope(params: dict[str, Any], scope: Scope, *, method: str) -> Claim:
    """Take the scope off ``params``. Raises :class:`~broker.errors.InvalidParamsError` for one of the wrong shape."""
    if scope is Scope.FREE:
        return Claim(None, None, params)
    fields = dict(params)
    parent, owner = fields.pop(PARENT, ABSENT), fields.pop(OWNER, ABSENT)
    faults: list[Fault] = []
    if parent is not ABSENT:
        faults += check(_PARENT, parent, PARENT)
    if owner is not ABSENT:
        faults += check(_OWNER, owner, OWNER)
    faults += _presence_faults(scope, parent, owner)
    if faults:
        refuse(faults, what=f"params of {method}", error=InvalidParamsError)
    return Claim(
        None if isinstance(parent, Absent) else parent,
        None if isinstance(owner, Absent) else _OWNER.decode(owner),
        fields,
    )


def _presence_faults(scope: Scope, parent: Any, owner: Any) -> list[Fault]:
    if scope is Scope.PARENT_OR_OWNER:
        if (parent is ABSENT) is (owner is ABSENT):
            return [Fault(PARENT, f"exactly one of {PARENT} and {OWNER} is needed")]
        return []
    faults = [Fault(PARENT, "is missing")] if parent is ABSENT else []
    if scope is Scope.PARENT_AND_OWNER and owner is ABSENT:
        faults.append(Fault(OWNER, "is missing"))
    return faults
