"""HTTP client sessions: one for the own site, one for the line."""

from aiohttp import ClientSession, TCPConnector

# Longer than any pause of a busy router, shorter than the servers' own (LINE_KEEP_ALIVE_SECONDS), so that it is
# never the server that closes a connection which a request is just being written to.
_IDLE_SECONDS = 300.0
LINE_KEEP_ALIVE_SECONDS = 600.0

# A client's connection without a request in it: also the time in which the head of its first one must be there, so
# that one which never completes it (a slow loris) does not stay.
CLIENT_KEEP_ALIVE_SECONDS = 60.0


def local_session() -> ClientSession:
    """To engines and renderers. No limit: the engines bound their own queues."""
    return ClientSession(connector=TCPConnector(limit=0, keepalive_timeout=4.0))


def line_session() -> ClientSession:
    """To main routers. Connections stay warm: a new one costs a round trip and starts slowly."""
    return ClientSession(connector=TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS))
