"""Credentials of a cluster as a client configuration.

A kubeconfig from a Secret is read for inline data only. Files and commands in it would be the operator's own,
and whoever may write the Secret must not be able to read or run those.
"""

import base64
import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

_REFUSED_USER = ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key", "username", "as")
_REFUSED_CLUSTER = ("certificate-authority", "insecure-skip-tls-verify", "proxy-url")


class BadCredentialsError(Exception):
    """The kubeconfig cannot be used; the message names the field and never its value."""


async def own_client() -> ApiClient:
    """A client with the operator's own credentials: its service account, or a developer's kubeconfig."""
    configuration = Configuration()
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config(configuration)
    else:
        await config.load_kube_config(client_configuration=configuration)
    return ApiClient(configuration)


def client_from(kubeconfig: str) -> ApiClient:
    """A client with the credentials of a kubeconfig's current context."""
    document = _parsed(kubeconfig)
    context = _named(document, "contexts", document.get("current-context"), "context")
    cluster = _named(document, "clusters", context.get("cluster"), "cluster")
    user = _named(document, "users", context.get("user"), "user")
    _refuse(cluster, _REFUSED_CLUSTER, "clusters[].cluster")
    _refuse(user, _REFUSED_USER, "users[].user")
    server = str(cluster.get("server", ""))
    if not server.startswith("https://"):
        raise BadCredentialsError("clusters[].cluster.server must start with https://")
    configuration = Configuration(
        host=server.rstrip("/"),
        ca_cert_data=_decoded(cluster, "certificate-authority-data"),
        tls_server_name=cluster.get("tls-server-name"),
    )
    if user.get("token"):
        configuration.api_key["BearerToken"] = f"Bearer {user['token']}"
    with _certificate_files(user) as (certificate, key):
        configuration.cert_file, configuration.key_file = certificate, key
        try:
            client = ApiClient(configuration)
        except (ssl.SSLError, ValueError):
            raise BadCredentialsError("its certificates cannot be loaded") from None
        configuration.cert_file = configuration.key_file = None
    return client


def _parsed(kubeconfig: str) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(kubeconfig)
    except yaml.YAMLError:
        document = None  # the parser's message would quote the credentials
    if not isinstance(document, Mapping):
        raise BadCredentialsError("it is not a kubeconfig in YAML")
    return document


def _named(document: Mapping[str, Any], section: str, name: object, inner: str) -> Mapping[str, Any]:
    for item in document.get(section) or []:
        if isinstance(item, Mapping) and item.get("name") == name and isinstance(item.get(inner), Mapping):
            found: Mapping[str, Any] = item[inner]
            return found
    raise BadCredentialsError(f"{section}[] has no entry for the current context")


def _refuse(section: Mapping[str, Any], fields: tuple[str, ...], path: str) -> None:
    for field in fields:
        if section.get(field):
            raise BadCredentialsError(f"{path}.{field} is refused: only inline credentials over verified TLS are read")


def _decoded(section: Mapping[str, Any], field: str) -> str | None:
    if not section.get(field):
        return None
    try:
        return base64.b64decode(section[field], validate=True).decode()
    except ValueError:
        raise BadCredentialsError(f"{field} is not base64") from None


@contextlib.contextmanager
def _certificate_files(user: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None]]:
    """The TLS library reads client certificates from files only; they exist while it does."""
    certificate = _decoded(user, "client-certificate-data")
    key = _decoded(user, "client-key-data")
    if certificate is None or key is None:
        yield None, None
        return
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for name, content in (("certificate", certificate), ("key", key)):
            path = os.path.join(directory, name)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
                file.write(content)
            paths.append(path)
        yield paths[0], paths[1]
