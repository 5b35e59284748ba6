"""Conformance of MCP servers."""
