"""What all three kinds share: the model base, CEL rules, metadata and conditions."""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP: Final = "pdd.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "pdd.dev/v1alpha1"

ConditionStatus = Literal["True", "False", "Unknown"]


def rule(expression: str, message: str) -> dict[str, str]:
    """A CEL validation: the API server refuses what makes `expression` false, with `message`."""
    return {"rule": expression, "message": message}


def listed_by(*keys: str) -> dict[str, Any]:
    """Schema extras of a list whose items are told apart by `keys`, so that owners can share it."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


class Model(BaseModel):
    """Camel case on the wire; CEL rules of a type are kept beside its fields in `rules`."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)

    rules: ClassVar[list[dict[str, str]]] = []


Name = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""A DNS label: the name of an object, a pool, a site."""

Price = Annotated[str, Field(max_length=16, pattern=r"^[0-9]+(\.[0-9]{1,6})?$")]
"""A decimal in a string: the API has no floats."""

Duration = Annotated[str, Field(max_length=16, pattern=r"^[0-9]+(us|ms|s)$")]
"""A whole number with its unit: us, ms or s."""


class Metadata(Model):
    """The part of an object's metadata that the operator reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] = []


class Condition(Model):
    """One aspect of an object's state, in the form that all Kubernetes tools read."""

    type: Annotated[str, Field(max_length=64)] = Field(description="The aspect.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    observed_generation: int = Field(ge=0, description="The generation of the spec that this condition was found for.")
    last_transition_time: str = Field(
        json_schema_extra={"format": "date-time"}, description="When the status last changed."
    )
    reason: Annotated[str, Field(max_length=64)] = Field(
        description="The cause, in one word that programs can compare."
    )
    message: Annotated[str, Field(max_length=1024)] = Field(
        default="", description="The cause for a human: what, where, what was expected, what to do."
    )


Conditions = Annotated[list[Condition], Field(json_schema_extra=listed_by("type"), max_length=16)]


class Status(Model):
    """What every status has."""

    observed_generation: int = Field(default=0, description="The generation of the spec this status is of.")
    conditions: Conditions = Field(default=[], description="Aspects of the state.")
