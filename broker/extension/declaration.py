"""What an extension offers and asks for, as data: ``initialize`` is answered from it, and manifests are held to it.

Sans-IO and without handlers: the author's decorators fill it, a connection reads it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from attrs import define, field

from broker.bus import Field
from broker.limits import CONCURRENT_CALLS
from broker.wire.octet.manifest import HOOKS, SESSION_HOOKS
from broker.wire.octet.models import ToolDefinition

ApiVersion: TypeAlias = Literal["0.3", "0.4"]
API_VERSIONS: Final[tuple[ApiVersion, ...]] = ("0.3", "0.4")


@define(eq=False)
class Declaration:
    """What one extension is. ``topics`` maps the topics it declares to their fields; ``uses`` are services by name."""

    name: str
    version: str
    api: ApiVersion
    uses: tuple[str, ...] = ()
    concurrency: int = CONCURRENT_CALLS
    tools: dict[str, ToolDefinition] = field(factory=dict)
    commands: dict[str, str] = field(factory=dict)
    hooks: list[str] = field(factory=list)
    topics: dict[str, tuple[Field, ...]] = field(factory=dict)
    subscriptions: list[str] = field(factory=list)
    serves: list[str] = field(factory=list)
    ui: list[str] = field(factory=list)
    renders: list[str] = field(factory=list)
    notices: list[str] = field(factory=list)
    context: bool = False
    menu: bool = False

    @property
    def hook_names(self) -> tuple[str, ...]:
        """The hooks a manifest of this extension declares: on 0.3 the session hooks are a pair."""
        if self.api == "0.3":
            return SESSION_HOOKS if self.hooks else ()
        return tuple(name for name in HOOKS[self.api] if name in self.hooks)

    @property
    def uses_bus(self) -> bool:
        """Whether there is any topic to declare or to subscribe to."""
        return bool(self.topics or self.subscriptions)

    def tools_json(self) -> list[dict[str, Any]]:
        """The ``tools`` member of the answer to ``initialize``."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            | ({"output_schema": tool.output_schema} if tool.output_schema else {})
            for tool in self.tools.values()
        ]
