"""Episodes of mechanisms: from a pose in which training began to joints that stay near the robot's default pose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gantry_deploy.contract.mechanism_spec import MechanismSpec
from gantry_deploy.control.loop import Controller
from gantry_deploy.evaluation.metrics import GoalScores, goal_scores
from gantry_deploy.evaluation.scenario import End, Episode, FloatArray, RolloutConfig, Scenario
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import GantryError
from gantry_hardware.model.capabilities import HasReset
from gantry_hardware.model.mechanism import Mechanism

NEAR_RAD = 0.2
"""Largest distance from the robot's default pose that counts as balanced."""
BALANCED_S = 1.0
"""Time at the end of an episode in which it must be kept."""
NOISE_SHARE = 0.1
"""Sensor noise in units of what walking policies are trained with: rails and shafts have finer encoders than legs."""


class BalanceScenario(Scenario):
    """Joints without a motor, or all where every one has one, are near the robot's default pose in the last second.

    The mechanism stands in the contract's default pose until the policy starts, and then begins in a drawn one, at
    rest. A pole that is to be swung up hangs down there; the robot's default pose is upright. Whole turns of a joint
    that turns for ever do not count. Joints with a motor may be anywhere within their limits: on a rail a cart that
    balances its pole drifts.

    Args:
        runner: The policy.
        config: Conditions.

    Raises:
        GantryError: If an episode is no longer than the time that must be kept.
    """

    seconds = 10.0
    conditions = "with a start as in training and sensor noise drawn for each"
    unused = ("friction", "added_mass_share", "resample_s")
    counts_success = True

    def __init__(self, runner: PolicyRunner, config: RolloutConfig) -> None:
        super().__init__(runner, config)
        if config.seconds <= BALANCED_S:
            raise GantryError(
                f"Episodes are {config.seconds:g} s long, expected more than {BALANCED_S:g} s, the time that a "
                "mechanism must stay balanced."
            )
        self._body: MechanismSpec = runner.contract.body
        mechanism: Mechanism = runner.spec.body
        still = mechanism.passive_joints or runner.spec.joint_names
        self._joints = [runner.spec.joint_index(name) for name in still]
        self._default = runner.spec.array("default_rad")[self._joints]
        self._endless = np.array([runner.spec.joint_names[i] in mechanism.endless_joints for i in self._joints])

    def make_robot(self, index: int) -> Robot:
        """See :meth:`Scenario.make_robot`."""
        rng = np.random.default_rng((self.config.seed, index))
        self._start = rng.uniform(self._body.start_lower_rad, self._body.start_upper_rad)
        noise, seed = NOISE_SHARE * self.config.noise, int(rng.integers(2**31))
        robot: Any = self.build(HasReset, "cannot be put into a pose", noise=noise, seed=seed)
        self._robot: Any = robot
        self._since_s: float | None = None
        return robot

    def begin(self, controller: Controller) -> None:
        """The policy has not started yet."""
        self._posed = False

    def command(self, time_s: float) -> FloatArray | None:
        """Let go in the drawn pose as the policy starts; nothing is asked of it."""
        if not self._posed:
            self._robot.reset(joint_pos_rad=self._start)
            self._posed = True
        return None

    def judge(self, command: FloatArray) -> End | None:
        """Look whether the pose is kept; ``command`` is (0,)."""
        state = self._robot.read()
        error = state.joint_pos_rad[self._joints] - self._default
        error = np.where(self._endless, (error + np.pi) % (2.0 * np.pi) - np.pi, error)
        if np.abs(error).max() > NEAR_RAD:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = state.stamp_s
        self._now_s = state.stamp_s
        return None

    def measured(self, failed: bool) -> dict[str, Any]:
        """Whether the pose was kept at the end, and the time, s."""
        kept_s = 0.0 if self._since_s is None else self._now_s - self._since_s
        return {"balanced": kept_s >= BALANCED_S, "balanced_s": kept_s}

    def drawn_conditions(self) -> dict[str, Any]:
        """Start positions of the joints, rad or m."""
        return {
            f"start_{name}": float(value) for name, value in zip(self.runner.spec.joint_names, self._start, strict=True)
        }

    def summarise(self, episodes: Sequence[Episode]) -> GoalScores:
        """Rates with confidence intervals."""
        return goal_scores([item.scores["balanced"] for item in episodes], [item.failed for item in episodes])

    @staticmethod
    def line(episode: Episode) -> str:
        """See :meth:`Scenario.line`."""
        if episode.scores["balanced"]:
            return f"balanced for the last {episode.scores['balanced_s']:.1f} s of {episode.seconds:.1f} s"
        return f"not balanced after {episode.seconds:.1f} s"
