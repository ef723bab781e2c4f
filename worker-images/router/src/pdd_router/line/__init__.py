"""The line between the sites, as the front sees it: one address a site, measured all the time."""
