"""The status of a PDDDeployment that is being deleted."""

from collections.abc import Sequence

from pdd_operator.api.pdd_deployment import PDDDeployment, PDDDeploymentStatus
from pdd_operator.plan.problem import Problem
from pdd_operator.status.conditions import Finding, conditions


def deletion_status(deployment: PDDDeployment, problems: Sequence[Problem], *, now: str) -> PDDDeploymentStatus:
    """The previous status, with what the deletion waits for."""
    generation = deployment.metadata.generation
    worst = next((problem for problem in problems if problem.needs_help), problems[0])
    stalled = worst.needs_help
    message = "; ".join(problem.message for problem in problems)
    findings = [
        Finding("Ready", "False", "Deleting", message),
        Finding("Reconciling", "False" if stalled else "True", worst.reason, message),
        Finding("Stalled", "True" if stalled else "False", worst.reason, message if stalled else ""),
    ]
    return deployment.status.model_copy(
        update={
            "observed_generation": generation,
            "conditions": conditions(findings, previous=deployment.status.conditions, generation=generation, now=now),
        }
    )
