"""Directives that write the tables of bounds and errors from the code that holds them, so that they cannot differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from broker.errors import ERROR_TABLE, BrokerError
from broker.limits import LIMITS


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


def _subclasses(error: type[BrokerError]) -> Iterator[type[BrokerError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Called by Sphinx."""
    app.add_directive("limits-table", LimitsTable)
    app.add_directive("errors-table", ErrorsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
