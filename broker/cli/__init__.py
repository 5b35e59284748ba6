"""The ``broker`` command: run extensions in one session, call a tool, check manifests."""
