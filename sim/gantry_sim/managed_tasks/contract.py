"""Contracts of tasks of other packages: what is missing told as text, and the robot found by its joints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from gantry_deploy.contract.embodiments import load_embodiment
from gantry_deploy.contract.policy_contract import BODY_VELOCITY, BODY_VELOCITY_NAMES, CommandSpec, PolicyContract
from gantry_deploy.errors import ContractError
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_names, robot_spec
from gantry_sim.managed_tasks.terms import ActorTerm, MissingTermError

C = TypeVar("C")


class NoContractError(GantryError):
    """A task of another package without a contract; the text says what is missing."""


class Contracts:
    """Contracts by configuration, each derived once; what is missing is remembered too.

    Args:
        key: Configuration -> text that is equal for configurations of one contract.
        name: Configuration -> the task's name in Gantry.
        derive: Configuration -> its contract; a NoContractError, MissingTermError or ContractError says what is
            missing.
    """

    def __init__(
        self, key: Callable[[Any], str], name: Callable[[Any], str], derive: Callable[[Any], PolicyContract]
    ) -> None:
        self._key, self._name, self._derive = key, name, derive
        self._kept: dict[str, PolicyContract | str] = {}

    def of(self, cfg: Any) -> PolicyContract:
        """The contract of the policies of a task.

        Raises:
            NoContractError: With everything that keeps the task from having one.
        """
        key = self._key(cfg)
        if key not in self._kept:
            try:
                self._kept[key] = self._derive(cfg)
            except (NoContractError, MissingTermError, ContractError) as error:
                self._kept[key] = (
                    f"Task '{self._name(cfg)}' has no contract, so its policies are trained and evaluated, not "
                    f"exported: {error}"
                )
        found = self._kept[key]
        if isinstance(found, str):
            raise NoContractError(found)
        return found

    def or_none(self, cfg: Any) -> PolicyContract | None:
        """The same; None where there is none."""
        try:
            return self.of(cfg)
        except NoContractError:
            return None


def errors_of(check: Callable[[C], Any], parts: Iterable[C]) -> list[str]:
    """Messages of the parts that a check refuses."""
    found = []
    for part in parts:
        try:
            check(part)
        except GantryError as error:
            found.append(str(error))
    return found


def require_nothing(missing: list[str], note: str = "") -> None:
    """Refuse with all that is missing.

    Raises:
        NoContractError: If anything is.
    """
    if missing:
        raise NoContractError(f"{' And '.join(missing)}{note}")


def robot_with(joint_names: tuple[str, ...], owner: str, body_type: type | None = None) -> RobotSpec:
    """The installed robot that has these joints in this order.

    Args:
        joint_names: Of the task.
        owner: Package of the task, for messages.
        body_type: Type of the body that a contract of the task has; None for none.

    Raises:
        NoContractError: If there is none, or a contract for it needs what no such task describes.
    """
    found = [spec for spec in map(robot_spec, robot_names()) if spec.joint_names == joint_names]
    if not found:
        raise NoContractError(
            f"no robot of Gantry has the joints {', '.join(joint_names)} in this order; `gantry robot new` makes one "
            f"from its model. Available: {', '.join(robot_names())}."
        )
    require_body(found[0], owner, body_type)
    return found[0]


def require_body(spec: RobotSpec, owner: str, body_type: type | None = None) -> None:
    """Refuse a robot of another embodiment than a task describes, told by the body in its contracts.

    Raises:
        NoContractError: If so.
    """
    needed = load_embodiment(spec.embodiment).body_type
    if needed is body_type:
        return
    if needed is None:
        assert body_type is not None
        raise NoContractError(
            f"robot '{spec.name}' is of embodiment '{spec.embodiment}'. Its contracts have no {body_type.__name__}, "
            f"and {owner}'s task describes one."
        )
    raise NoContractError(
        f"a contract for robot '{spec.name}' needs a {needed.__name__}, as every one of embodiment "
        f"'{spec.embodiment}', which {owner}'s task does not describe."
    )


def velocity_command(terms: list[ActorTerm], ranges_of: Callable[[str], Any]) -> CommandSpec:
    """Velocity command that a term of the actor shows.

    Args:
        terms: Of the actor.
        ranges_of: Name of a command -> its ranges ``lin_vel_x``, ``lin_vel_y``, ``ang_vel_z``, m/s and rad/s.

    Raises:
        NoContractError: If no term shows one.
    """
    name = command_name(terms)
    if name is None:
        raise NoContractError("it has no velocity command among the actor's observations, and nothing could be asked.")
    ranges = ranges_of(name)
    low, high = zip(ranges.lin_vel_x, ranges.lin_vel_y, ranges.ang_vel_z, strict=True)
    return CommandSpec(BODY_VELOCITY, BODY_VELOCITY_NAMES, floats(low), floats(high), (0.0, 0.0, 0.0))


def command_name(terms: list[ActorTerm]) -> str | None:
    """Name of the command that a term of the actor shows; None for none."""
    return next((term.cfg.params["command_name"] for term in terms if "command_name" in term.cfg.params), None)


def row_of(value: Any, width: int) -> tuple[float, ...]:
    """A number for each joint, of one number or a tensor (N, width)."""
    if isinstance(value, (int, float)):
        return (float(value),) * width
    return floats(np.broadcast_to(value[0].cpu().numpy(), (width,)))


def floats(values: Any) -> tuple[float, ...]:
    """Plain numbers."""
    return tuple(float(value) for value in values)
