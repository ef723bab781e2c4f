"""What a router may do in its cluster: read the EndpointSlices of its namespace."""

from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.desired.labels import Manifest, metadata, object_name


def router_access(deployment: PDDDeployment, component: str) -> list[Manifest]:
    """ServiceAccount, Role and RoleBinding of the site's router."""
    name = object_name(deployment, "router")
    about = metadata(deployment, name, component)
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": about,
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": about,
            "rules": [
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["get", "list", "watch"],
                }
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": deployment.metadata.namespace}],
        },
    ]
