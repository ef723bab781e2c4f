"""Few examples, no deadline: the machine may be busy, and the inputs are small."""

from hypothesis import settings

settings.register_profile("quick", max_examples=40, deadline=None)
settings.load_profile("quick")
