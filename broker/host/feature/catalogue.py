"""The tool catalogue of one process generation: as initialize gave it, and as the extension changed it since.

A change is made whole or not at all, and each one that is made raises the revision by one, from 0. As every change is
answered with the complete catalogue, one that no line could hold is not made. Source: octet notes, section 5
(``tools/register``, ``tools/unregister``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from broker.errors import Fault, InvalidParamsError, ResourceExhaustedError
from broker.host.feature.services import CatalogueChange
from broker.limits import MAX_FEATURE_LINE_BYTES, MAX_JSON_RPC_ID_BYTES, MAX_TOOLS
from broker.wire.feature.values import compact_size
from broker.wire.octet.catalogue import tool_faults
from broker.wire.octet.models import ToolDefinition
from broker.wire.octet.schema import encode, refuse
from broker.wire.quoting import quote

_AROUND: Final = len(b'{"jsonrpc":"2.0","id":"","result":{"revision":9223372036854775807,"tools":[]}}\n')
_ROOM: Final = MAX_FEATURE_LINE_BYTES - _AROUND - 6 * MAX_JSON_RPC_ID_BYTES
"""Bytes for the tools in an answer, whatever the id of the request is and however much of it has to be escaped."""


class ToolCatalogue:
    """Tools by name, in the order they came, and the revision they are of."""

    def __init__(self, tools: Iterable[ToolDefinition] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.revision: int = 0

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The definitions of now."""
        return tuple(self._tools.values())

    def registered(self, tools: Sequence[ToolDefinition]) -> CatalogueChange:
        """What the catalogue would be with ``tools`` added, each in place of the one of its name if there is one.

        Raises :class:`~broker.errors.InvalidParamsError` for a bad or repeated definition and
        :class:`~broker.errors.ResourceExhaustedError` for too many tools, or more than an answer can hold.
        """
        names = [tool.name for tool in tools]
        faults = [
            Fault(f"tools[{index}].name", f"{quote(name)} appears twice")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
        faults += tool_faults(tools, measure=compact_size)
        if faults:
            refuse(faults, what="tools/register", error=InvalidParamsError)
        return self._change({**self._tools, **dict(zip(names, tools, strict=True))}, put=tuple(names))

    def unregistered(self, names: Sequence[str]) -> CatalogueChange:
        """What the catalogue would be without these tools; :class:`~broker.errors.InvalidParamsError` for any other."""
        faults = [
            Fault(f"names[{index}]", f"{quote(name)} {'appears twice' if name in self._tools else 'is not a tool'}")
            for index, name in enumerate(names)
            if name not in self._tools or name in names[:index]
        ]
        if faults:
            refuse(faults, what="tools/unregister", error=InvalidParamsError)
        left = {name: tool for name, tool in self._tools.items() if name not in names}
        return self._change(left, removed=tuple(names))

    def commit(self, change: CatalogueChange) -> None:
        """Make a change that was built from this revision; :class:`~broker.errors.InvalidParamsError` otherwise."""
        if change.revision != self.revision + 1:
            raise InvalidParamsError(
                f"the catalogue went to revision {self.revision} while this change was decided", path="revision"
            )
        self._tools = {tool.name: tool for tool in change.tools}
        self.revision = change.revision

    def to_json(self) -> dict[str, Any]:
        """The result of a change: the revision and the complete catalogue."""
        return {"revision": self.revision, "tools": [encode(tool) for tool in self.tools]}

    def _change(self, tools: dict[str, ToolDefinition], **names: tuple[str, ...]) -> CatalogueChange:
        if len(tools) > MAX_TOOLS:
            raise ResourceExhaustedError(
                f"the catalogue would have {len(tools)} tools, at most {MAX_TOOLS} are allowed",
                limit="MAX_TOOLS",
                observed=len(tools),
                maximum=MAX_TOOLS,
            )
        size = sum(compact_size(encode(tool)) + 1 for tool in tools.values())
        if size > _ROOM:
            raise ResourceExhaustedError(
                f"the catalogue would have {size} bytes, of which a line of the answer can hold {_ROOM}",
                limit="MAX_FEATURE_LINE_BYTES",
                observed=size,
                maximum=_ROOM,
            )
        return CatalogueChange(revision=self.revision + 1, tools=tuple(tools.values()), **names)
