"""What the operator tells a router: a JSON file, read again when it changes.

Its shape is a contract with the operator (`docs/design/contracts.md`); unknown keys are refused so that a
newer operator's wish is never silently ignored by an older router.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel


class ConfigError(Exception):
    """The file cannot be used; the message names the file, the key and what was expected."""


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Site(_Model):
    """A main-decode site as the front sees it: addresses of its main router and the line to it."""

    name: str
    link: str
    addresses: list[str] = Field(description="host:port of the main router, any of which will do")
    bandwidth_bits_per_second: int = Field(gt=0)


class Routing(_Model):
    tolerated_wait_millis: int = Field(default=500, ge=0)
    request_overrides: Literal["Refused", "Allowed"] = "Refused"
    max_requests: int = Field(default=256, ge=1, description="that this router works on at once")


class FrontServices(_Model):
    prefill: str
    relay_decode: str
    renderer: str


class MainServices(_Model):
    main_decode: str


class _Common(_Model):
    deployment: str
    namespace: str
    site: str
    model: str


class FrontConfig(_Common):
    mode: Literal["front"]
    services: FrontServices
    sites: list[Site]
    routing: Routing = Routing()
    api_keys_dir: str | None = Field(default=None, description="a file for each valid key; none: everybody may ask")


class MainConfig(_Common):
    mode: Literal["main"]
    services: MainServices


RouterConfig = Annotated[FrontConfig | MainConfig, Field(discriminator="mode")]
_ADAPTER: TypeAdapter[FrontConfig | MainConfig] = TypeAdapter(RouterConfig)


def parse(text: str, *, source: str) -> FrontConfig | MainConfig:
    """Raises ConfigError, which names `source`, the keys and what was expected of each."""
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"{source}: {wrong}") from None


def load(path: Path) -> FrontConfig | MainConfig:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(text, source=str(path))
