"""What the operator is told by its environment."""

import os
from dataclasses import dataclass

from pdd_operator.desired.sites import Images


@dataclass(frozen=True)
class Settings:
    """Defaults for PDDDeployments that name no images."""

    images: Images

    @classmethod
    def from_environment(cls) -> "Settings":
        """`PDD_ENGINE_IMAGE` and `PDD_ROUTER_IMAGE`."""
        return cls(
            images=Images(engine=os.environ.get("PDD_ENGINE_IMAGE", ""), router=os.environ.get("PDD_ROUTER_IMAGE", ""))
        )
