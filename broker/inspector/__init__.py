"""Looking into a running session: what an inspector knows of it, and a terminal view (extra ``inspect``).

:class:`Inspection` needs nothing but the session; :class:`broker.inspector.app.InspectorApp` draws it with textual.
"""

from __future__ import annotations

from broker.inspector.form import Form, FormField
from broker.inspector.inspection import ExtensionRow, InspectedRecord, Inspection, SubscriberRow, Tool
from broker.inspector.search import Search

__all__ = ["ExtensionRow", "Form", "FormField", "InspectedRecord", "Inspection", "Search", "SubscriberRow", "Tool"]
