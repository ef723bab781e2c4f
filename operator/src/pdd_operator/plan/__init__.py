"""Pure decisions: what is wanted and what was observed become the next actions."""
