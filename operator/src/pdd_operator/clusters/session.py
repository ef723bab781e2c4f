"""One cluster's API server: its own client, time-outs and circuit breaker."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.dynamic import DynamicClient
from kubernetes.aio.dynamic.exceptions import DynamicApiError

from pdd_operator.clusters.breaker import Breaker
from pdd_operator.clusters.errors import ApiError, ConflictError, UnreachableError
from pdd_operator.clusters.kinds import Kind

Object = dict[str, Any]

FIELD_MANAGER: Final = "pdd-operator"
_REQUEST_SECONDS: Final = 10.0
_POD_SECONDS: Final = 8.0
_WATCH_SECONDS: Final = 300
_BUSY_ATTEMPTS: Final = 3

logger = logging.getLogger(__name__)


class Session:
    """Requests to one API server. Raises UnreachableError for no answer and ApiError for a refusal."""

    def __init__(self, name: str, client: ApiClient) -> None:
        self.name = name
        self._client = client
        self._dynamic = DynamicClient(client)  # never awaited: that would start discovery
        self._breaker = Breaker()

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.close()

    async def version(self) -> str:
        """The API server's version."""
        return str((await self._request("get", "/version"))["gitVersion"])

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """The object, or None where there is none."""
        try:
            return await self._request("get", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: Kind, namespace: str = "", *, selector: str = "", fields: str = "") -> Sequence[Object]:
        """All objects, or those that the selectors of labels and fields choose."""
        answer = await self._request(
            "get", kind.path(namespace), label_selector=selector or None, field_selector=fields or None
        )
        # Items of a list carry neither kind nor apiVersion.
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in answer.get("items") or []]

    async def create(self, kind: Kind, body: Object) -> Object:
        """A new object."""
        namespace = body["metadata"].get("namespace", "")
        return await self._request("post", kind.path(namespace), body=body, field_manager=FIELD_MANAGER)

    async def apply(self, kind: Kind, body: Object, *, force: bool) -> Object:
        """Server-side apply; without `force`, a conflict where another manager holds a differing field."""
        about = body["metadata"]
        return await self._request(
            "patch",
            kind.path(about.get("namespace", ""), about["name"]),
            body=body,
            content_type="application/apply-patch+yaml",
            field_manager=FIELD_MANAGER,
            force_conflicts=str(force).lower(),
        )

    async def merge(self, kind: Kind, name: str, namespace: str, body: Object) -> Object:
        """JSON merge patch."""
        return await self._request(
            "patch",
            kind.path(namespace, name),
            body=body,
            content_type="application/merge-patch+json",
            field_manager=FIELD_MANAGER,
        )

    async def replace_status(self, kind: Kind, body: Object) -> Object:
        """The object's status; a conflict where its resourceVersion is not the current one."""
        about = body["metadata"]
        path = kind.path(about.get("namespace", ""), about["name"], "status")
        return await self._request("put", path, body=body, field_manager=FIELD_MANAGER)

    async def delete(self, kind: Kind, found: Object) -> None:
        """Delete exactly this object, not a namesake made since; one that is gone is a success."""
        about = found["metadata"]
        try:
            await self._request(
                "delete",
                kind.path(about.get("namespace", ""), about["name"]),
                body={"preconditions": {"uid": about["uid"]}, "propagationPolicy": "Background"},
            )
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    async def through_pod(self, namespace: str, pod: str, port: int, path: str) -> Object:
        """GET from a pod, as JSON, through the API server. A pod that hangs says nothing about the API server."""
        try:
            async with asyncio.timeout(_POD_SECONDS):
                return await self._request("get", f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/{path}")
        except TimeoutError:
            raise UnreachableError(f"pod {pod} did not answer in time") from None

    async def watch(self, kind: Kind, namespace: str = "", *, selector: str = "") -> AsyncIterator[Object]:
        """The objects of the watch events from now on, until the API server ends the stream."""
        query = {"label_selector": selector or None}
        now = await self._request("get", kind.path(namespace), limit=1, **query)
        response = await self._send(
            "get",
            kind.path(namespace),
            watch="true",
            resource_version=now["metadata"]["resourceVersion"],
            timeout_seconds=_WATCH_SECONDS,
            _request_timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_WATCH_SECONDS + 30),
            **query,
        )
        try:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["object"]
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise UnreachableError(_described(error)) from None
        finally:
            response.close()

    async def _request(self, method: str, path: str, **query: Any) -> Object:
        timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS, sock_connect=5)
        try:
            response = await self._send(method, path, _request_timeout=timeout, **query)
            answer: Object = json.loads(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UnreachableError(_described(error)) from None
        except ValueError:
            raise ApiError(502, f"{path} did not answer in JSON") from None
        return answer

    async def _send(self, method: str, path: str, **query: Any) -> aiohttp.ClientResponse:
        loop = asyncio.get_running_loop()
        if not self._breaker.allows(loop.time()):
            raise UnreachableError("it did not answer lately; the next trial is due within a minute")
        try:
            response = await self._patiently(method, path, query)
        except DynamicApiError as error:
            self._breaker.succeeded()
            raise _api_error(error) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._breaker.failed(loop.time())
            raise UnreachableError(_described(error)) from None
        self._breaker.succeeded()
        return response

    async def _patiently(self, method: str, path: str, query: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """The request, again while the API server says that it is too busy."""
        for attempt in range(1, _BUSY_ATTEMPTS + 1):
            try:
                response: aiohttp.ClientResponse = await self._dynamic.request(method, path, serialize=False, **query)
                return response
            except DynamicApiError as error:
                if error.status != 429 or attempt == _BUSY_ATTEMPTS:
                    raise
                headers = error.headers or {}
                await asyncio.sleep(min(float(headers.get("Retry-After", attempt)), 5.0))
        raise AssertionError("unreachable")


def _api_error(error: DynamicApiError) -> ApiError:
    try:
        message = str(json.loads(error.body)["message"])
    except (KeyError, TypeError, ValueError):
        message = str(error.reason)
    kind = ConflictError if error.status == 409 else ApiError
    return kind(error.status, message)


def _described(error: BaseException) -> str:
    """What went wrong with the connection; such messages hold addresses, never credentials."""
    return str(error) or "no answer in time"
