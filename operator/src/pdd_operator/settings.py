"""What the operator is told by its environment."""

import os
from dataclasses import dataclass

from pdd_operator.desired.sites import Images


@dataclass(frozen=True)
class Settings:
    """Images: those of PDDDeployments that name none, and of the operator's own parts."""

    images: Images
    link_image: str = ""
    """Of the link agents; without it none are installed."""

    @classmethod
    def from_environment(cls) -> "Settings":
        """`PDD_ENGINE_IMAGE`, `PDD_ROUTER_IMAGE` and `PDD_LINK_IMAGE`."""
        return cls(
            images=Images(engine=os.environ.get("PDD_ENGINE_IMAGE", ""), router=os.environ.get("PDD_ROUTER_IMAGE", "")),
            link_image=os.environ.get("PDD_LINK_IMAGE", ""),
        )
