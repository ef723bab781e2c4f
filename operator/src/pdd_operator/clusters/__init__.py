"""Members: how each is reached, and what happens when it is not."""
