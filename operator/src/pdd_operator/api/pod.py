"""The few pod types that the API passes through to the members' pods."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pdd_operator.api.base import Model, listed_by, rule

Quantity = Annotated[
    str | int,
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "pattern": r"^[0-9]+(\.[0-9]+)?([munkMGTPE]|[KMGTPE]i|[eE][0-9]+)?$",
        }
    ),
]
"""A Kubernetes quantity: `500m`, `4Gi`, `2`."""


class Toleration(Model):
    """A taint that pods of a pool tolerate; the same as a pod's toleration."""

    key: Annotated[str, Field(max_length=317)] | None = Field(
        default=None, description="The taint's key; empty with operator Exists tolerates every taint."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="How key and value are compared with the taint's."
    )
    value: Annotated[str, Field(max_length=63)] | None = Field(
        default=None, description="The taint's value; empty with operator Exists."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect; empty tolerates all effects."
    )
    toleration_seconds: int | None = Field(
        default=None, ge=0, description="How long a NoExecute taint is tolerated; empty is for ever."
    )


class Resources(Model):
    """CPU and memory of a container. Chips are added from the pool and the parallelism."""

    requests: dict[str, Quantity] = Field(
        default={}, max_length=8, description="What the scheduler sets aside, by resource name."
    )
    limits: dict[str, Quantity] = Field(
        default={}, max_length=8, description="What the container may use at most, by resource name."
    )


class KeySelector(Model):
    """A key of a Secret or ConfigMap."""

    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="Name of the object, in the pod's namespace of the member cluster."
    )
    key: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="The key in it.")


class EnvSource(Model):
    """Where the value of a variable comes from."""

    secret_key_ref: KeySelector | None = Field(default=None, description="A key of a Secret.")
    config_map_key_ref: KeySelector | None = Field(default=None, description="A key of a ConfigMap.")

    rules: ClassVar = [
        rule(
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
            "set exactly one of secretKeyRef and configMapKeyRef",
        )
    ]


class EnvVar(Model):
    """A variable of the engine's environment."""

    name: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description="Name of the variable."
    )
    value: Annotated[str, Field(max_length=8192)] | None = Field(default=None, description="Its value.")
    value_from: EnvSource | None = Field(default=None, description="Where its value comes from, in place of value.")

    rules: ClassVar = [
        rule("!(has(self.value) && has(self.valueFrom))", "set value or valueFrom, not both"),
        rule(
            "!self.name.startsWith('PDD_') && self.name != 'POD_IP'",
            "PDD_* and POD_IP are set by the operator",
        ),
    ]


Args = Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=128)]
Env = Annotated[list[EnvVar], Field(max_length=128, json_schema_extra=listed_by("name"))]


def to_manifest(model: Model) -> dict[str, Any]:
    """The model as it stands in a pod."""
    return model.model_dump(by_alias=True, exclude_none=True)
