"""What ``odek-extension/v1`` adds to MCP: server configuration, approval, results, and artifact references."""
