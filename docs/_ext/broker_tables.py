"""Directives that write tables from the code that holds what is in them, so that the two cannot differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from broker.errors import ERROR_TABLE, BrokerError
from broker.limits import LIMITS
from broker.wire.feature.features import FEATURES, Feature
from broker.wire.feature.methods import METHODS, Method, Scope
from broker.wire.versions import POLICY


def build_table(widths: Sequence[int], head: Sequence[str], rows: Iterable[Sequence[nodes.Node]]) -> nodes.table:
    """A table of one head row and body rows; a cell is an inline node."""
    group = nodes.tgroup(cols=len(widths))
    group += [nodes.colspec(colwidth=width) for width in widths]
    group += nodes.thead("", _row([nodes.Text(text) for text in head]))
    group += nodes.tbody("", *[_row(cells) for cells in rows])
    return nodes.table("", group, classes=["colwidths-given"])


def _row(cells: Sequence[nodes.Node]) -> nodes.row:
    return nodes.row("", *[nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells])


def _literal(text: str) -> nodes.literal:
    return nodes.literal(text, text)


class LimitsTable(SphinxDirective):
    """``.. limits-table::`` is every bound of :data:`broker.limits.LIMITS`, in the order they are declared."""

    def run(self) -> list[nodes.Node]:
        rows = [
            (
                _literal(limit.name),
                nodes.Text(f"{limit.value:,} {limit.unit}".replace(",", "\N{NARROW NO-BREAK SPACE}")),
                nodes.Text(limit.source),
                nodes.Text(limit.reason),
            )
            for limit in LIMITS.values()
        ]
        return [build_table((34, 20, 14, 32), ("Name", "Value", "Source", "What it bounds, and why"), rows)]


class ErrorsTable(SphinxDirective):
    """``.. errors-table::`` is :data:`broker.errors.ERROR_TABLE`, each row with the exceptions that stand for it."""

    def run(self) -> list[nodes.Node]:
        exceptions: dict[str, list[str]] = {name: [] for name in ERROR_TABLE}
        for error in _subclasses(BrokerError):
            exceptions[error.name].append(error.__name__)
        rows = [
            (
                _literal(row.name),
                _literal(str(row.code)),
                nodes.Text(row.message),
                nodes.Text(", ".join(exceptions[row.name])),
            )
            for row in ERROR_TABLE.values()
        ]
        return [build_table((22, 10, 30, 38), ("Name", "Code", "Message", "Raised as"), rows)]


class VersionsTable(SphinxDirective):
    """``.. versions-table::`` is :data:`broker.wire.versions.POLICY`."""

    def run(self) -> list[nodes.Node]:
        rows = [
            (
                _literal(row.api_version),
                nodes.Text(row.status),
                _literal(row.wire),
                nodes.Text("yes" if row.installable else "no"),
            )
            for row in POLICY.values()
        ]
        return [build_table((10, 20, 40, 30), ("API", "Status", "Wire", "Installable from a bundle"), rows)]


class FeaturesTable(SphinxDirective):
    """``.. features-table::`` is :data:`broker.wire.feature.features.FEATURES`."""

    def run(self) -> list[nodes.Node]:
        rows = [(_literal(row.name), nodes.Text(row.since), nodes.Text(_offered(row))) for row in FEATURES.values()]
        return [build_table((34, 10, 56), ("Feature", "Since", "Offered"), rows)]


def _offered(row: Feature) -> str:
    if row.required:
        return "required"
    condition = "when the host honours it" if row.service is None else f"when {row.service} is bound"
    more = [f"with {row.needs}"] if row.needs else []
    more += [f"if the manifest declares {row.grant}"] if row.grant else []
    return ", ".join([condition, *more])


class MethodsTable(SphinxDirective):
    """``.. methods-table::`` is :data:`broker.wire.feature.methods.METHODS`."""

    def run(self) -> list[nodes.Node]:
        rows = [
            (
                _literal(row.name),
                nodes.Text(row.since),
                nodes.Text(_sender(row)),
                nodes.Text(row.feature or "none"),
                nodes.Text("none" if row.scope is Scope.FREE else row.scope.value),
                nodes.Text(_records(row)),
            )
            for row in METHODS.values()
        ]
        head = ("Method", "Since", "From", "Feature", "Scope", "Parameters and result")
        return [build_table((24, 7, 16, 18, 12, 23), head, rows)]


def _records(row: Method) -> str:
    result = "open" if row.result is None else row.result.__name__
    if not row.from_extension:
        return "the host's" if row.notification else f"the host's, {result}"
    params = "open" if row.params is None else row.params.__name__
    return params if row.notification else f"{params}, {result}"


def _sender(row: Method) -> str:
    sender = "both" if row.from_host and row.from_extension else "host" if row.from_host else "extension"
    return f"{sender}, a notification" if row.notification else sender


def _subclasses(error: type[BrokerError]) -> Iterator[type[BrokerError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Called by Sphinx."""
    app.add_directive("limits-table", LimitsTable)
    app.add_directive("errors-table", ErrorsTable)
    app.add_directive("versions-table", VersionsTable)
    app.add_directive("features-table", FeaturesTable)
    app.add_directive("methods-table", MethodsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
