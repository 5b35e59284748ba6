"""Looking into a running session: what an inspector knows of it, and a terminal view (extra ``inspect``).

:class:`Inspection` needs nothing but the session; :class:`broker.inspector.app.InspectorApp` draws it with textual.
"""

from __future__ import annotations

from broker.inspector.form import Form, FormField
from broker.inspector.inspection import Entry, ExtensionRow, Inspection, SubscriberRow, Tool
from broker.inspector.search import Search

__all__ = ["Entry", "ExtensionRow", "Form", "FormField", "Inspection", "Search", "SubscriberRow", "Tool"]
