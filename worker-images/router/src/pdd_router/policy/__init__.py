"""Decisions, each a pure function of what was observed. import-linter keeps I/O, time and chance out."""
