"""Conformance of extensions of API 0.3."""
