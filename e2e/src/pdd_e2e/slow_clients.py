"""Clients that are slow on purpose. They run beside the front router, in its pod: no proxy on the way buffers."""

import json

from pdd_e2e.deployments import NAMESPACE
from pdd_e2e.kube import Cluster

# Says how the connection was after so many seconds: the status line that came, and when it ended.
_CLIENT = """
import json, select, socket, sys, time
how, body, patience = sys.argv[1], sys.argv[2].encode(), float(sys.argv[3])
head = (b"POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n"
        % len(body))
connection = socket.socket()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
connection.connect(("127.0.0.1", 8000))
at_once, slowly = {
    "head": (b"", head), "body": (head + b"\\r\\n", body), "reading": (head + b"\\r\\n" + body, b"")
}[how]
connection.sendall(at_once)
began, came, ended, watched = time.monotonic(), b"", None, select.poll()
watched.register(connection, select.POLLIN * (how != "reading"))  # a reset is told in any case
while ended is None and time.monotonic() < began + patience:
    for _, event in watched.poll(500):
        try:
            part = connection.recv(4096) if event & select.POLLIN else b""
        except OSError:
            part = b""
        came += part
        if not part:
            ended = time.monotonic() - began
    if slowly[:-1] and ended is None:
        try:
            connection.send(slowly[:1])
        except OSError:
            ended = time.monotonic() - began
        slowly = slowly[1:]
print(json.dumps({"status": came.split(b"\\r\\n")[0].decode(), "ended": ended}))
"""


def slow(cluster: Cluster, pod: str, how: str, body: dict[str, object], *, patience: float) -> tuple[str, float]:
    """A client slow with its `head`, its `body` (a byte each half second) or in `reading` the answer (nothing).

    Returns the status line that came, and the seconds after which the router ended the connection. Raises TimeoutError
    when it did not.
    """
    command = ("python3", "-c", _CLIENT, how, json.dumps(body), str(patience))
    said = json.loads(
        cluster.kubectl("-n", NAMESPACE, "exec", pod, "-c", "router", "--", *command, timeout=patience + 30)
    )
    if said["ended"] is None:
        raise TimeoutError(f"the router kept a client that is slow in {how} for {patience:.0f} s")
    return str(said["status"]), float(said["ended"])
