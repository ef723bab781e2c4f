"""The renderer: vLLM's OpenAI API server, whose engine core is the front router at the other end of a WebSocket.

Everything that a client can see is vLLM's own code, fed with one stream of token ids. What is here is the seam:
`session` (which channel a request belongs to), `channel` (the WebSocket), `core` (what vLLM takes for its engine
core), `engine` (vLLM's client of it), `wire` (the messages), `serving` (the two endpoints) and `plugin` (how vLLM
comes to load it). The messages are described in docs/design/contracts.md.
"""
