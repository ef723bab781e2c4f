"""Reads and writes of our own objects on the hub."""

import logging
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from pdd_operator.api.base import Condition, Status
from pdd_operator.clusters.errors import ApiError, UnreachableError
from pdd_operator.clusters.kinds import EVENT, Kind
from pdd_operator.clusters.session import Object, Session
from pdd_operator.loops import Key
from pdd_operator.status.transitions import transitions

logger = logging.getLogger(__name__)

FINALIZER: Final = "pdd.dev/cleanup"


def timestamp() -> str:
    """Now, as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def write_status(
    hub: Session, kind: Kind, found: Object, status: Status, *, previous: Sequence[Condition]
) -> Object | None:
    """Write the status where it differs, with an Event for each transition; None where nothing changed."""
    wanted = status.model_dump(by_alias=True, exclude_none=True)
    if found.get("status") == wanted:
        return None
    written = await hub.replace_status(kind, {**found, "status": wanted})
    for transition in transitions(previous, status.conditions):
        about = found["metadata"]
        subject = str(Key(found["kind"], about["name"], about.get("namespace", "")))
        logger.info(transition.message, extra={"object": subject, "reason": transition.reason})
        await _event(hub, found, transition.type, transition.reason, transition.message)
    return written


async def set_finalizer(hub: Session, kind: Kind, found: Object, *, present: bool) -> Object:
    """Add or remove our finalizer; a conflict where the object changed since it was read."""
    about = found["metadata"]
    finalizers = [each for each in about.get("finalizers") or [] if each != FINALIZER]
    if present:
        finalizers.append(FINALIZER)
    body: Object = {"metadata": {"finalizers": finalizers, "resourceVersion": about["resourceVersion"]}}
    return await hub.merge(kind, about["name"], about.get("namespace", ""), body)


async def _event(hub: Session, found: Object, kind: str, reason: str, message: str) -> None:
    about, now = found["metadata"], timestamp()
    namespace = about.get("namespace") or "default"
    body: Object = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": found["apiVersion"],
            "kind": found["kind"],
            "name": about["name"],
            "namespace": about.get("namespace", ""),
            "uid": about["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": "pdd-operator"},
        "reportingComponent": "pdd-operator",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await hub.create(EVENT, body)
    except (ApiError, UnreachableError) as error:
        logger.warning("no Event %s for %s %s: %s", reason, found["kind"], about["name"], error)
