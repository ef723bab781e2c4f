"""What the operator tells an agent: a JSON file, read again when it changes. Unknown keys are refused."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel


class ConfigError(Exception):
    """A file cannot be used; the message names the file, the key and what was expected."""


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, strict=True)


class Router(_Model):
    """The router of the other site, where the agent tries whether a connection can be made."""

    host: str
    port: int = Field(gt=0, lt=65536)


class Peer(_Model):
    """An agent of the other site."""

    site: str
    host: str = Field(description="address or name")
    probe_port: int = Field(gt=0, lt=65536)
    router: Router | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.probe_port}" if ":" in self.host else f"{self.host}:{self.probe_port}"


class LinkConfig(_Model):
    link: str
    site: str
    bandwidth_bits_per_second: int = Field(gt=0)
    peers: tuple[Peer, ...] = Field(description="none while the other site has no agents yet")


def load(path: Path) -> LinkConfig:
    """Raises ConfigError."""
    try:
        return LinkConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"{path}: {wrong}") from None
