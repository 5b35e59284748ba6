"""Directives that write the tables of the octet 0.3 contract from the records that the code itself checks with."""

from __future__ import annotations

from broker_tables import build_table
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from broker.limits import LIMITS
from broker.wire.octet.contract import CAPABILITIES, METHODS
from broker.wire.octet.json_schema import summary
from broker.wire.octet.migration_models import SourcePath
from broker.wire.octet.model_table import METHOD_MODELS, MODELS, STREAM_PAYLOADS, Model
from broker.wire.octet.schema import Boolean, Integer, Items, Json, Nested, RpcId, Text, Union, WireType, members


def literal(text: str) -> nodes.literal:
    """``text`` as code."""
    return nodes.literal(text, text)


class CapabilitiesTable(SphinxDirective):
    """``.. capabilities-table::`` is the capability table of octet 0.3, each row with its methods."""

    def run(self) -> list[nodes.Node]:
        rows = [
            (
                literal(row.name),
                nodes.Text(row.offer.value),
                nodes.Text(row.status.value),
                nodes.Text(", ".join(method.name for method in METHODS.values() if method.capability == row.name)),
            )
            for row in CAPABILITIES.values()
        ]
        return [build_table((24, 14, 14, 48), ("Capability", "Offer", "Status", "Methods"), rows)]


class ContractMethodsTable(SphinxDirective):
    """``.. contract-methods-table::`` is the method table of octet 0.3, each row with its models."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for row in METHODS.values():
            models = METHOD_MODELS[row.name]
            rows.append(
                (
                    literal(row.name),
                    nodes.Text(row.direction.value.replace("_", " ")),
                    nodes.Text(models.params or ""),
                    nodes.Text(models.result or ""),
                    nodes.Text(models.terminal.replace("_", " ")),
                    nodes.Text("yes" if row.notification else "no"),
                )
            )
        head = ("Method", "Direction", "Parameters", "Result", "Ends with", "Notification")
        return [build_table((20, 16, 22, 22, 12, 8), head, rows)]


class ModelsTables(SphinxDirective):
    """``.. models-tables::`` is a section for every wire model of octet 0.3, with a table of its members."""

    def run(self) -> list[nodes.Node]:
        return [self._section(name, model) for name, model in {**MODELS, **STREAM_PAYLOADS}.items()]

    def _section(self, name: str, model: Model) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(f"model-{name}")])
        section += nodes.title(name, name)
        variants = model.variants.items() if isinstance(model, Union) else [("", model)]
        for word, record in variants:
            text = summary(record)
            if isinstance(model, Union):
                section += nodes.paragraph("", "", literal(f'{model.tag}: "{word}"'), nodes.Text(f". {text}"))
            else:
                section += nodes.paragraph(text, text)
            rows = [
                (
                    literal(member.name),
                    nodes.Text(_kind(member.kind)),
                    nodes.Text("required" if member.required else "optional"),
                    nodes.Text("yes" if member.nullable else "no"),
                )
                for member in members(record)
            ]
            if rows:
                section += build_table((24, 44, 18, 14), ("Member", "Type", "Presence", "May be null"), rows)
        if isinstance(model, Union) and model.deferred:
            words = ", ".join(model.deferred)
            section += nodes.paragraph("", f"Deferred, and refused as capability_mismatch: {words}.")
        return section


def _kind(kind: WireType) -> str:
    """A member's type in words, with its bound."""
    if isinstance(kind, Text):
        if kind.choices:
            return "one of " + ", ".join(kind.choices)
        bound = f", at most {LIMITS[kind.limit].value} bytes" if kind.limit else ""
        return f"string{bound}" + (f", {kind.pattern}" if kind.pattern else ", not blank" if kind.label else "")
    if isinstance(kind, SourcePath):
        return f"source-relative path, at most {LIMITS['MAX_MIGRATION_PATH_BYTES'].value} bytes"
    if isinstance(kind, Integer):
        return f"integer from {kind.minimum}" if kind.minimum >= 0 else "signed integer"
    if isinstance(kind, Boolean):
        return "boolean"
    if isinstance(kind, RpcId):
        return "request id"
    if isinstance(kind, Json):
        return "json" + (f", at most {LIMITS[kind.max_bytes].value} canonical bytes" if kind.max_bytes else "")
    if isinstance(kind, Items):
        return f"array of {_kind(kind.of)}" + (f"; at most {LIMITS[kind.limit].value} items" if kind.limit else "")
    assert isinstance(kind, Nested | Union)
    model = kind.model if isinstance(kind, Nested) else kind
    return next((name for name, other in MODELS.items() if other is model), "object")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Called by Sphinx."""
    app.add_directive("capabilities-table", CapabilitiesTable)
    app.add_directive("contract-methods-table", ContractMethodsTable)
    app.add_directive("models-tables", ModelsTables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
