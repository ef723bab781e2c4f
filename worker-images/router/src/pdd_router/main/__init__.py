"""The one address of a main-decode site: picks the MD, pulls KV, streams tokens."""
