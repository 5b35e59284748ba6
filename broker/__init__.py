"""An embedded event bus and plugin broker for Python host processes."""
