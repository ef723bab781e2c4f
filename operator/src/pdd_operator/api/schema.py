"""A pydantic model as a structural schema: no references, no titles, no nulls, CEL rules in place."""

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from pdd_operator.api.base import Model

Schema = dict[str, Any]

_KEPT = (
    "description", "type", "format", "enum", "default", "pattern", "minimum", "maximum", "minLength",
    "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "required",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string",
)  # fmt: skip


class _WithModels(GenerateJsonSchema):
    """Keeps each model's CEL rules beside its schema."""

    def model_schema(self, schema: Any) -> Schema:
        generated = super().model_schema(schema)
        model: type[Model] = schema["cls"]
        if model.rules:
            generated["x-kubernetes-validations"] = model.rules
        return generated


def structural(model: type[Model]) -> Schema:
    """The schema of `model` as a CRD takes it."""
    by_model, definitions = models_json_schema([(model, "validation")], schema_generator=_WithModels)
    return _inlined(by_model[model, "validation"], definitions["$defs"])


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    node = _merged(node, definitions)
    result: Schema = {key: node[key] for key in _KEPT if key in node}
    if node.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    if "const" in node:
        result |= {"type": "string", "enum": [node["const"]]}
    if "default" in result:
        result["default"] = _without_nulls(result["default"])
        if result["default"] is None:
            del result["default"]
    if "properties" in node:
        result["properties"] = {name: _inlined(child, definitions) for name, child in node["properties"].items()}
    if isinstance(node.get("additionalProperties"), Mapping):
        result["additionalProperties"] = _inlined(node["additionalProperties"], definitions)
    if "items" in node:
        result["items"] = _inlined(node["items"], definitions)
    if node.get("x-kubernetes-validations"):
        result["x-kubernetes-validations"] = node["x-kubernetes-validations"]
    return result


def _merged(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """`node` with its reference followed and its `| None` dropped; what stands beside a reference wins."""
    merged = dict(node)
    if "$ref" in merged:
        target = definitions[merged.pop("$ref").removeprefix("#/$defs/")]
        return _merged({**target, **merged}, definitions)
    if "anyOf" in merged:
        alternatives = [item for item in merged.pop("anyOf") if item.get("type") != "null"]
        if not merged.get("x-kubernetes-int-or-string"):
            (alternative,) = alternatives
            return _merged({**alternative, **merged}, definitions)
    return merged


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value
