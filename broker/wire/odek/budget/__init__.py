"""Execution budgets: which limits a run has, counting against them, sharing them with children, and exit codes."""
