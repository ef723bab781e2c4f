"""The API `pdd.dev/v1alpha1`: pydantic models, the source of the CRDs."""

from pdd_operator.api.member_cluster import MemberCluster
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.wan_link import WANLink

__all__ = ["MemberCluster", "PDDDeployment", "WANLink"]
