"""Conformance of extensions of API 0.1, 0.2 and 0.4."""
