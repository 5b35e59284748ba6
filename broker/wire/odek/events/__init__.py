"""The event stream ``odek.event/v1``: its types, what of a tool's arguments is told, redaction, and reading it back."""
