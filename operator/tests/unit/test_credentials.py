"""Which kubeconfigs are read, and that none is quoted."""

import base64
from typing import Any

import pytest
import yaml

from pdd_operator.clusters.credentials import BadCredentialsError, client_from

SECRET = "do-not-show-this"


def _kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {"token": SECRET}}],
    }


async def test_token_over_tls() -> None:
    client = client_from(yaml.safe_dump(_kubeconfig()))
    assert client.configuration.host == "https://10.0.0.1:6443"
    settings = await client.configuration.auth_settings()
    assert settings["BearerToken"]["value"] == f"Bearer {SECRET}"
    assert client.configuration.verify_ssl
    await client.close()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (_kubeconfig(user={"exec": {"command": "id"}}), r"users\[\].user.exec is refused"),
        (_kubeconfig(user={"tokenFile": "/var/run/secrets/token"}), "tokenFile is refused"),
        (_kubeconfig(user={"client-key": "/etc/key"}), "client-key is refused"),
        (_kubeconfig(user={"auth-provider": {"name": "x"}}), "auth-provider is refused"),
        (_kubeconfig({"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify is refused"),
        (_kubeconfig({"certificate-authority": "/etc/ca"}), "certificate-authority is refused"),
        (_kubeconfig({"server": "http://10.0.0.1"}), "must start with https"),
        (_kubeconfig({"certificate-authority-data": f"{SECRET}!"}), "is not base64"),
        ({**_kubeconfig(), "current-context": "y"}, "no entry for the current context"),
        ({}, "no entry for the current context"),
        (SECRET, "not a kubeconfig"),
    ],
)
def test_refused(document: Any, message: str) -> None:
    with pytest.raises(BadCredentialsError, match=message) as refusal:
        client_from(yaml.safe_dump(document))
    assert SECRET not in str(refusal.value)


def test_text_that_is_no_yaml_is_not_quoted() -> None:
    with pytest.raises(BadCredentialsError) as refusal:
        client_from(f"a: [{SECRET}")
    assert SECRET not in str(refusal.value)


def test_a_bad_certificate_is_refused_without_quoting_it() -> None:
    encoded = base64.b64encode(SECRET.encode()).decode()
    user = {"client-certificate-data": encoded, "client-key-data": encoded}
    with pytest.raises(BadCredentialsError) as refusal:
        client_from(yaml.safe_dump(_kubeconfig(user=user)))
    assert SECRET not in str(refusal.value)
