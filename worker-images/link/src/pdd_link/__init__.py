"""The link agent: measures the line between two sites, all the time and from both ends."""
