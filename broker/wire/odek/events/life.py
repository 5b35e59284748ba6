"""What becomes of extensions and servers, as further types of the event stream.

The contract's consumers ignore types they do not know, so these may stand among its own. A host emits them only if it
watches a session (:func:`broker.host.life.watch`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

from attrs import Attribute, field, frozen

from broker.errors import InvalidParamsError
from broker.wire.odek.events.types import ERROR_CLASSES


def _error_class(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None and value not in ERROR_CLASSES:
        raise InvalidParamsError(f"error_class: expected one of {', '.join(ERROR_CLASSES)}", path="error_class")


@frozen(kw_only=True)
class ExtensionStarted:
    """A generation of an extension, or an MCP server, serves; ``tools`` is how many it has."""

    type: ClassVar[str] = "extension_started"
    extension: str
    generation: int
    tools: int


@frozen(kw_only=True)
class ExtensionExited:
    """Its process is gone. ``status`` is negative for a signal, and left out with ``error_class`` where there is none.

    Without an ``error_class`` it was an orderly stop.
    """

    type: ClassVar[str] = "extension_exited"
    extension: str
    generation: int
    status: int | None = None
    error_class: str | None = field(default=None, validator=_error_class)


@frozen(kw_only=True)
class ExtensionRestarting:
    """It broke, and a new process follows after a delay."""

    type: ClassVar[str] = "extension_restarting"
    extension: str


@frozen(kw_only=True)
class ExtensionParked:
    """It broke, and is not started again."""

    type: ClassVar[str] = "extension_parked"
    extension: str


@frozen(kw_only=True)
class PeerRetired:
    """The bus closed a peer that could not take what it has to know; its process is ended."""

    type: ClassVar[str] = "peer_retired"
    extension: str
    generation: int


LifePayload: TypeAlias = ExtensionStarted | ExtensionExited | ExtensionRestarting | ExtensionParked | PeerRetired

LIFE_TYPES: Final[dict[str, type[LifePayload]]] = {
    payload.type: payload
    for payload in (ExtensionStarted, ExtensionExited, ExtensionRestarting, ExtensionParked, PeerRetired)
}
"""The five types by their names."""
