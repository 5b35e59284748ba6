"""The feature-negotiated wire of extension API 0.1, 0.2 and 0.4: one JSON object a line, sans-IO."""
