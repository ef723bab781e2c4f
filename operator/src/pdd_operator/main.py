"""`pdd-operator`: runs until it is told to stop."""

import os
import socket
import sys

import kopf

from pdd_operator.logs import configure_logging

HEALTH_PORT = 8080


def main() -> int:
    """Entry point."""
    configure_logging()
    from pdd_operator import handlers  # noqa: F401, PLC0415 registers with kopf

    # kopf wants a name for this process, and looks for a user's where a pod's uid has none.
    os.environ.setdefault("POD_ID", socket.gethostname())
    port = os.environ.get("PDD_HEALTH_PORT", str(HEALTH_PORT))
    kopf.run(
        clusterwide=True,
        standalone=True,
        liveness_endpoint=f"http://0.0.0.0:{port}/healthz",
        memo=kopf.Memo(),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
