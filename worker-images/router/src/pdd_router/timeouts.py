"""How long a router waits for whom. Every wait ends in an error that names what was waited for."""

from aiohttp import ClientTimeout

# A peer that does not complete a TCP handshake in this time is gone, even behind a 200 ms line.
_CONNECT = 3.0

# One whole answer (a prefill, a pull of tens of GB over a thin line) takes minutes at most.
WHOLE_ANSWER = ClientTimeout(total=600, sock_connect=_CONNECT)

# Between two tokens of a stream: queueing, preemption and an extend step fit, a dead engine does not.
STREAM = ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=120)

# A stream that begins with a pull: nothing comes while the KV crosses the line.
PULL_AND_STREAM = ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=600)

# Small control calls: facts, pings.
CONTROL = ClientTimeout(total=3, sock_connect=_CONNECT)

# A renderer answers at the pace of the engines behind it, which have limits of their own.
RENDERER = ClientTimeout(total=None, sock_connect=_CONNECT)

# One round trip through an engine's core, which may be in the middle of a long step.
ALIVE = ClientTimeout(total=10, sock_connect=_CONNECT)

# An engine whose core has not turned for this long is put aside, and its requests go on elsewhere. Longer than any
# step: 2,048 tokens of prefill take seconds on a CPU, and a fraction of one on an accelerator.
HUNG_SECONDS = 20.0

# A site that has not answered a ping for this long is cut off; its requests go on elsewhere.
CUT_OFF_SECONDS = 10.0

# How long a request that lost its engine looks for another one.
RECOVERY_SECONDS = 30.0

# A client must have sent the body of a request in this time. Its head: CLIENT_KEEP_ALIVE_SECONDS.
CLIENT_SECONDS = 20.0

# A client that does not read has gone, as far as its slot and the engines are concerned.
CLIENT_READS_SECONDS = 60.0
