"""One JSON object a line."""

import json
import logging
from datetime import UTC, datetime

_FIELDS = ("object", "reason")
"""What a record may carry beside its message."""


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging() -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("aiohttp.access", "kopf.objects", "kopf.activities.probe"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
