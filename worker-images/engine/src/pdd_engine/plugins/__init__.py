"""vLLM plugins, registered in pyproject.toml."""
