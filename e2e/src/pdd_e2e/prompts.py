"""Prompts of given lengths as token ids, the same on every run."""

from random import Random

# Ordinary tokens of the demo models' vocabulary of 49,152.
_FIRST_ID, _LAST_ID = 1_000, 49_000


def prompt(length: int, seed: int) -> list[int]:
    random = Random(f"{length} {seed}")
    return [random.randrange(_FIRST_ID, _LAST_ID) for _ in range(length)]
