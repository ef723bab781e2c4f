"""The PDD operator: one PDDDeployment over two clusters, reconciled from the hub."""
