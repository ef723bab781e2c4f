"""Patches of private parts apply to the releases they were written for, and to no other."""

import logging

VLLM_VERSION = "0.32.0"

logger = logging.getLogger("vllm.pdd")


def is_release(version: str, release: str) -> bool:
    """Whether a version belongs to a release: 0.32.0+cpu is of 0.32.0, and 1.5.1 of 1.5."""
    return (version.partition("+")[0] + ".").startswith(release + ".")


def is_our_vllm(what: str) -> bool:
    """Whether this is the vLLM that the patches know. If not, say what goes without."""
    import vllm  # noqa: PLC0415 - these modules are tested where vLLM is not installed

    if is_release(vllm.__version__, VLLM_VERSION):
        return True
    logger.warning("vLLM is %s, and PDD's patches are written for %s: %s", vllm.__version__, VLLM_VERSION, what)
    return False
