"""Robots on two wheels, whose actions are wheel speeds."""

from __future__ import annotations

from typing import Any

from gantry_deploy.actions.decoder import ActionKind, JointTargets, joint_labels
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.embodiment import Embodiment
from gantry_deploy.observations.signals import Signals
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.elevation.ops import namespace
from gantry_rover.robot import RoverBody

WHEEL_TARGET = "target/joint/velocity"


class WheelDecoder:
    """Turns actions (N, 2), times the contract's scale, into wheel speeds, rad/s."""

    targets = None

    def __init__(self, contract: PolicyContract, like: Any, spec: RobotSpec | None = None) -> None:
        self._xp, self._bound = namespace(like), contract.action.clip
        self._scale = contract.action.scale[0]

    def reset(self, joint_pos_rad: Any, rows: Any | None = None) -> None:
        """Nothing continues from earlier targets."""

    def clip(self, action: Any) -> Any:
        """The action (N, 2) within the contract's bounds."""
        return self._xp.clip(action, -self._bound, self._bound)

    def __call__(self, action: Any, signals: Signals) -> JointTargets:
        """Wheel speeds of an action (N, 2); wheels have no target position."""
        return JointTargets(signals.joint_pos_rad, self.clip(action) * self._scale)


class TwoWheels(Embodiment):
    """A base on two driven wheels."""

    name = "two_wheels"
    noun = "a robot on two wheels"
    body_type = RoverBody
    robot_body_type = RoverBody
    action_kinds = (
        ActionKind(WHEEL_TARGET, "gantry_rover.embodiment:WheelDecoder", joint_labels, gives_velocity=True),
    )
    simulated_backend = "rover"
    start_words = "drive for"

    def scenario(self, contract: PolicyContract) -> str:
        """Velocities to follow."""
        return "gantry_deploy.evaluation.walking:VelocityScenario"


TWO_WHEELS = TwoWheels()
"""Registered as ``two_wheels``."""
