"""The kinds of object that the operator handles.

A table rather than discovery: discovery costs a round trip for each API group of every member and caches its
findings in a file.
"""

from dataclasses import dataclass

from pdd_operator.api.base import API_VERSION


@dataclass(frozen=True)
class Kind:
    """One kind and where the API server keeps it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of an object, or of the collection where `name` is empty."""
        root = "api" if "/" not in self.api_version else "apis"
        parts = ["", root, self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
EVENT = Kind("v1", "Event", "events")
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("v1", "Node", "nodes", namespaced=False)
POD = Kind("v1", "Pod", "pods")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
SECRET = Kind("v1", "Secret", "secrets")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")

MEMBER_CLUSTER = Kind(API_VERSION, "MemberCluster", "memberclusters", namespaced=False)
WAN_LINK = Kind(API_VERSION, "WANLink", "wanlinks", namespaced=False)
PDD_DEPLOYMENT = Kind(API_VERSION, "PDDDeployment", "pdddeployments")

OWNED = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, SERVICE, CONFIG_MAP, DEPLOYMENT)
"""Kinds that a PDDDeployment owns in a member, in the order of their need for each other."""

BY_NAME = {kind.kind: kind for kind in (*OWNED, SECRET)}
