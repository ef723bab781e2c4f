"""HTTP client sessions: one for the own site, one for the line."""

from aiohttp import ClientSession, TCPConnector

# Longer than any pause of a busy router, shorter than the servers' own (KEEP_ALIVE_SECONDS), so that it is
# never the server that closes a connection which a request is just being written to.
_IDLE_SECONDS = 300.0
KEEP_ALIVE_SECONDS = 600.0


def local_session() -> ClientSession:
    """To engines and renderers. No limit: the engines bound their own queues."""
    return ClientSession(connector=TCPConnector(limit=0, keepalive_timeout=4.0))


def line_session() -> ClientSession:
    """To main routers. Connections stay warm: a new one costs a round trip and starts slowly."""
    return ClientSession(connector=TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS))
