"""What PDD adds to vLLM: the entry point of the engine pods, and plugins for the engine and the renderer."""
