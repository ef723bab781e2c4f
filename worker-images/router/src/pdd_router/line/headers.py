"""What an answer that began with a pull says about it; numbers of several prompts are summed."""

ENGINE_HEADER = "X-PDD-Engine"
CACHED_HEADER = "X-PDD-Cached-Tokens"
SECONDS_HEADER = "X-PDD-Pull-Seconds"
