"""Course of a robot's first day: the steps in order, and what a failed one keeps from running."""

from __future__ import annotations

from collections.abc import Callable

from gantry_deploy.commission.moving import check_joints, check_policy, check_stop
from gantry_deploy.commission.operator import OperatorGoneError
from gantry_deploy.commission.site import Site, StepResult
from gantry_deploy.commission.still import check_camera, check_network, check_ranges, check_readings
from gantry_hardware.errors import GantryError

STEPS: dict[str, Callable[[Site], StepResult]] = {
    "readings": check_readings,
    "network": check_network,
    "ranges": check_ranges,
    "joints": check_joints,
    "stop": check_stop,
    "camera": check_camera,
    "policy": check_policy,
}
"""All steps, in the order of a first day."""


MOVING = ("joints", "stop", "policy")
"""Steps in which the robot moves."""


def commission(site: Site, names: tuple[str, ...], results: list[StepResult]) -> None:
    """Do the steps in order. A step that fails keeps those from running that move the robot, unless the operator wants
    to go on.

    Args:
        site: Robot, operator and settings.
        names: Steps to do, names of :data:`STEPS`.
        results: Gets the outcome of each step as it ends.

    Raises:
        OperatorGoneError: If the terminal was closed; the robot is limp or damped then.
    """
    for name in (step for step in STEPS if step in names):
        failed = [result.name for result in results if result.verdict == "failed"]
        if failed and name in MOVING:
            why = f"{', '.join(failed)} failed"
            if site.operator.ask(f"{why}. Go on with '{name}' nevertheless?") == "n":
                results.append(StepResult(name, "skipped", f"{why}; not gone on with"))
                continue
        site.operator.tell(f"\n== {name} ==")
        try:
            results.append(STEPS[name](site))
        except OperatorGoneError:
            raise
        except GantryError as error:
            results.append(StepResult(name, "failed", str(error)))
        site.operator.tell(f"{results[-1].verdict}: {results[-1].text}")
