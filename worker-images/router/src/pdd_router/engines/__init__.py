"""The engines and renderers of the router's own site."""
