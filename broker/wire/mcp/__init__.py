"""MCP 2025-03-26 as ``odek-extension/v1`` uses it, client side: lines, messages, the peer, the catalogue."""
