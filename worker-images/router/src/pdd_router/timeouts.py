"""How long a router waits for whom. Every wait ends in an error that names what was waited for."""

from aiohttp import ClientTimeout

# A peer that does not complete a TCP handshake in this time is gone, even behind a 200 ms line.
_CONNECT = 3.0

# One whole answer (a prefill, a pull of tens of GB over a thin line) takes minutes at most.
WHOLE_ANSWER = ClientTimeout(total=600, sock_connect=_CONNECT)

# Between two tokens of a stream: queueing, preemption and an extend step fit, a dead engine does not.
STREAM = ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=120)

# An OpenAI endpoint at MD: nothing comes while the KV crosses the line, and an answer that is not streamed comes in one
# piece after its last token.
ENDPOINT = ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=900)

# Small control calls: facts, pings.
CONTROL = ClientTimeout(total=3, sock_connect=_CONNECT)

# Rendering is CPU work on the prompt: 100K tokens take about a second.
RENDER = ClientTimeout(total=60, sock_connect=_CONNECT)

# One delta of ids to text, in a renderer that may be rendering a long prompt for somebody else.
DETOKENIZE_SECONDS = 30.0
