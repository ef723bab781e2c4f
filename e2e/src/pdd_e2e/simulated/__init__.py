"""Stand-ins for faults and scale only: everything else runs against real engines."""
