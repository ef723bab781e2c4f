"""The operator against real API servers."""
