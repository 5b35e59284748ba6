"""The directive that writes the tables of conformance rules from their catalogue."""

from __future__ import annotations

from broker_tables import build_table
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from broker.conform.rules import Family, rules_of


class ConformanceRules(SphinxDirective):
    """``.. conformance-rules:: FAMILY`` is every rule of one family, in the order in which they are reported."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        rows = [
            (nodes.literal(rule.id, rule.id), nodes.Text(rule.title), nodes.Text(rule.where), nodes.Text(rule.how))
            for rule in rules_of(Family(self.arguments[0]))
        ]
        return [build_table((28, 28, 20, 24), ("Rule", "What it asks", "Source", "How it is tested"), rows)]


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_directive("conformance-rules", ConformanceRules)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
