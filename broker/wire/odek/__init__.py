"""What ``odek-extension/v1`` adds to MCP, and has beside it: servers, results, artifacts, outside state, sub-agents."""
