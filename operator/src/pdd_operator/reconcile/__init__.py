"""One module a kind: observe, decide, act, write the status."""
