"""The probes themselves: sockets, timers, and nothing that decides."""
