"""The OpenAI endpoint at the prefill site."""
