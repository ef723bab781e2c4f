"""Where an engine finds the model: name, volumes and variables for each kind of source."""

import posixpath
from dataclasses import dataclass, field

from pdd_operator.api.pdd_deployment import ModelSource
from pdd_operator.desired.labels import Manifest

_CLAIM_MOUNT = "/models/pvc"
_HUB_MOUNT = "/models/hub"


@dataclass(frozen=True)
class Weights:
    """The model as a pod sees it."""

    model: str
    revision: str = ""
    env: list[Manifest] = field(default_factory=list)
    volumes: list[Manifest] = field(default_factory=list)
    mounts: list[Manifest] = field(default_factory=list)


def weights(source: ModelSource) -> Weights:
    """The one source that is set."""
    if source.image is not None:
        return Weights(model=source.image.path)
    if source.persistent_volume_claim is not None:
        claim = source.persistent_volume_claim
        return Weights(
            model=posixpath.normpath(posixpath.join(_CLAIM_MOUNT, claim.path)),
            volumes=[{"name": "model", "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}}],
            mounts=[{"name": "model", "mountPath": _CLAIM_MOUNT, "readOnly": True}],
        )
    if source.hugging_face is None:
        raise ValueError("the API server lets no model through without a source")
    hub = source.hugging_face
    env: list[Manifest] = [{"name": "HF_HOME", "value": _HUB_MOUNT}]
    if hub.token_secret_ref is not None:
        reference = {"name": hub.token_secret_ref.name, "key": hub.token_secret_ref.key}
        env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    return Weights(
        model=hub.repo,
        revision=hub.revision,
        env=env,
        volumes=[{"name": "hub", "emptyDir": {}}],
        mounts=[{"name": "hub", "mountPath": _HUB_MOUNT}],
    )
