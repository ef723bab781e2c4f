"""The same request to the endpoint and to the engine alone, as raw bytes over HTTP: what a client's library is fed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import httpx

from pdd_e2e.parity.compare import by_choice, differences

DONE = "[DONE]"
# The engine alone joins tokens that come faster than it sends them, so its own chunks are not always the same.
_TRIES = 4


@dataclass(frozen=True)
class Reply:
    """`events`: the JSON of each, and "[DONE]"; the one body of an answer that is no stream. `trace`: what the router
    adds for X-PDD-Trace."""

    status: int
    headers: httpx.Headers
    events: list[Any]
    trace: dict[str, Any] = field(default_factory=dict)

    @property
    def is_stream(self) -> bool:
        return self.headers["Content-Type"].startswith("text/event-stream")

    @property
    def usage(self) -> dict[str, Any]:
        for event in reversed(self.events):
            if isinstance(event, dict) and event.get("usage"):
                return dict(event["usage"])
        return {}

    def text(self, name: str = "content") -> str:
        """Of the first choice: a field of its message, or of all its deltas; `text` for completions."""
        parts = []
        for event in self.events:
            for choice in event.get("choices", ()) if isinstance(event, dict) else ():
                if choice["index"] == 0:
                    message = choice.get("message") or choice.get("delta") or choice
                    parts.append(message.get(name) or "")
        return "".join(parts)


class Asking:
    """`url`s without `/v1`. Answers of the engine alone are kept, by body."""

    def __init__(self, endpoint: str, alone: str):
        self._endpoint, self._alone = endpoint, alone
        self._http = httpx.Client(timeout=120)
        self._kept: dict[str, list[Reply]] = {}
        self._session = uuid4().hex[:8]
        self._numbers = count()
        self.compared = 0
        """Events that were compared and equal."""

    def endpoint(self, route: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        return self._ask(self._endpoint, route, body, {"X-PDD-Trace": "on"} if headers is None else headers)

    def alone(self, route: str, body: Any) -> Reply:
        """The right answer."""
        return self._right(route, body, 0)

    def alone_again(self, route: str, body: Any) -> Reply:
        """What it answers the second time."""
        return self._right(route, body, 1)

    def differences(self, route: str, body: Any, headers: Mapping[str, str]) -> tuple[Reply, list[str]]:
        """The endpoint's reply, and where it is not one that the engine alone gives.

        Neither finds anything of the prompt in its cache: every request has a salt of its own.
        """
        reply = self.endpoint(route, body, headers)
        found: list[str] = []
        for place in range(_TRIES):
            right = self._right(route, body, place)
            found = list(_between(reply, right))
            if not found:
                self.compared += len(reply.events)
                return reply, []
            if not right.is_stream or len(right.events) == len(reply.events):
                break
        return reply, found

    def _right(self, route: str, body: Any, place: int) -> Reply:
        key = route + (body.decode(errors="replace") if isinstance(body, bytes) else json.dumps(body, sort_keys=True))
        kept = self._kept.setdefault(key, [])
        while len(kept) <= place:
            kept.append(self._ask(self._alone, route, body, {}))
        return kept[place]

    def _ask(self, url: str, route: str, body: Any, headers: Mapping[str, str]) -> Reply:
        """`body`: bytes go as they are; JSON gets a `cache_salt` that no other request has."""
        number = next(self._numbers)
        request_id = f"parity-{self._session}-{number}"
        if not isinstance(body, bytes):
            salt = f"{body.get('cache_salt', '')}-{self._session}-{number}"
            body = json.dumps(body | {"cache_salt": salt}).encode()
        response = self._http.post(
            f"{url}/v1/{route}",
            content=body,
            headers={"Content-Type": "application/json", "X-Request-Id": request_id, **headers},
        )
        text = response.text.replace(request_id, "REQUEST")
        trace: dict[str, Any] = {}
        events: list[Any] = []
        if response.headers["Content-Type"].startswith("text/event-stream"):
            *lines, rest = text.split("\n\n")
            if rest or not all(line.startswith("data: ") for line in lines):
                raise AssertionError(f"not a stream of events: {text[:300]!r}...{text[-300:]!r}")
            for line in lines:
                event = DONE if line == f"data: {DONE}" else json.loads(line.removeprefix("data: "))
                if isinstance(event, dict) and event.get("object") == "pdd.trace":
                    trace = event["pdd"]
                else:
                    events.append(event)
        else:
            events.append(json.loads(text))
            trace = events[0].get("pdd") or {}
        return Reply(response.status_code, response.headers, events, trace)


def _between(reply: Reply, right: Reply) -> list[str]:
    mine = {"status": reply.status, "type": reply.headers["Content-Type"], "events": by_choice(reply.events)}
    other = {"status": right.status, "type": right.headers["Content-Type"], "events": by_choice(right.events)}
    return list(differences(mine, other))
