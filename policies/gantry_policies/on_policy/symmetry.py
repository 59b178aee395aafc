"""Left-right symmetry of a robot as index maps, and its use in PPO without a larger batch.

A policy for a symmetric robot should answer a mirrored observation with the mirrored action. rsl_rl appends the
mirrored copy of every sample; here half of the samples of a minibatch are mirrored, others in every epoch, which has
the same expectation over the epochs of an update at half the cost (Mittal et al., ICRA 2024, study both the data and
the loss form of this prior).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gantry_deploy.contract.footstep_spec import STEP_NAMES, STEP_TARGET
from gantry_deploy.contract.policy_contract import MapWindow, PolicyContract
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_names, robot_spec
from gantry_hardware.spec import RobotSpec
from gantry_policies.on_policy.sides import partners, sign_of_joint

MIRRORED_STEPS = ("front_foot_y_m", "rear_foot_y_m", "lin_vel_y_m_s", "ang_vel_z_rad_s", "base_roll_rad")
"""Numbers of an action of steps that change sign in a mirror."""


@dataclass(frozen=True)
class MirrorMap:
    """``mirrored[i] = sign[i] * value[source[i]]``."""

    source: tuple[int, ...]
    """Source index of each entry."""
    sign: tuple[float, ...]
    """Factor on each entry."""

    def __add__(self, other: MirrorMap) -> MirrorMap:
        """The map of two vectors written one after the other."""
        offset = len(self.source)
        return MirrorMap(self.source + tuple(offset + i for i in other.source), self.sign + other.sign)

    @classmethod
    def signs(cls, *sign: float) -> MirrorMap:
        """A vector whose entries stay in place."""
        return cls(tuple(range(len(sign))), sign)


def mirror_names(names: tuple[str, ...], sign: tuple[float, ...], central: Collection[str] = ()) -> MirrorMap:
    """The map of a vector with one entry per named part.

    Args:
        names: Of the parts; sides are found by :func:`gantry_policies.on_policy.sides.partners`.
        sign: Factor on each entry.
        central: Parts that lie in the plane of symmetry.

    Raises:
        GantryError: If a part has no counterpart and is not central.
    """
    return MirrorMap(tuple(map(names.index, partners(names, central))), sign)


def mirror_joints(names: tuple[str, ...], central: Collection[str] = ()) -> MirrorMap:
    """The map of joint vectors: sides swap, and axes along x (roll, abduction) and z (yaw) change sign.

    Args:
        names: Of the joints.
        central: Joints that lie in the plane of symmetry, such as a waist.

    Raises:
        GantryError: If a joint has no counterpart and is not central, or its axis cannot be told from its name.
    """
    others = partners(names, central)
    return MirrorMap(tuple(map(names.index, others)), tuple(map(sign_of_joint, names)))


def robot_joint_mirror(robot: str, names: tuple[str, ...]) -> MirrorMap:
    """The map of joint vectors of a robot: as its spec declares it, or told from the joints' names.

    Args:
        robot: Name of the robot; one that is not registered is judged by names alone.
        names: Of its joints, in the order of the vectors.

    Raises:
        GantryError: If nothing is declared and the names do not tell.
    """
    declared = robot_spec(robot).mirrored_joints if robot in robot_names() else ()
    if not declared or robot_spec(robot).joint_names != names:
        return mirror_joints(names, central_joints(robot))
    return MirrorMap(tuple(names.index(name) for name, _ in declared), tuple(sign for _, sign in declared))


def mirror_feet(spec: RobotSpec) -> MirrorMap:
    """The map of a vector with one entry per foot: as the spec declares it, or told from the feet's names.

    Raises:
        GantryError: If nothing is declared and the names do not tell.
    """
    sign = (1.0,) * len(spec.feet)
    if spec.mirrored_feet:
        return MirrorMap(tuple(spec.feet.index(name) for name in spec.mirrored_feet), sign)
    return mirror_names(spec.feet, sign)


def central_joints(robot: str) -> tuple[str, ...]:
    """Joints that a registered robot declares to lie in its plane of symmetry; none for a robot that is not known."""
    return robot_spec(robot).central_joints if robot in robot_names() else ()


def mirror_window(window: MapWindow) -> MirrorMap:
    """The map of a window of elevations, flattened (rows, cols, channels): sides swap, values stay.

    Coordinates are no part of the observation, so cells take the value that lies at their mirror image.

    Raises:
        GantryError: If the window does not lie symmetrically.
    """
    if window.center_y_m != 0.0:
        raise GantryError(f"The map window lies {window.center_y_m:g} m to the left; only a centred one mirrors.")
    rows, cols, channels = range(window.rows), range(window.cols), range(len(window.channels))
    source = tuple(
        (row * len(cols) + len(cols) - 1 - col) * len(channels) + channel
        for row in rows
        for col in cols
        for channel in channels
    )
    return MirrorMap(source, (1.0,) * len(source))


def mirror_action(contract: PolicyContract) -> MirrorMap:
    """The map of the policy's action: of joints, or of steps."""
    if contract.action.kind != STEP_TARGET:
        return robot_joint_mirror(contract.robot, contract.joint_names)
    return MirrorMap.signs(*(-1.0 if name in MIRRORED_STEPS else 1.0 for name in STEP_NAMES))


def mirror_actor(contract: PolicyContract) -> MirrorMap:
    """The map of the actor's observation, history included.

    Raises:
        GantryError: If a term's mirror image is not known.
    """
    joints = robot_joint_mirror(contract.robot, contract.joint_names)
    maps = {
        "base_lin_vel": MirrorMap.signs(1, -1, 1),
        "base_ang_vel": MirrorMap.signs(-1, 1, -1),
        "projected_gravity": MirrorMap.signs(1, -1, 1),
        "joint_pos": joints,
        "joint_vel": joints,
        "last_action": mirror_action(contract),
        "velocity_command": MirrorMap.signs(1, -1, -1),
        # x, y, sine and cosine of the heading error
        "goal_command": MirrorMap.signs(1, -1, -1, 1),
        # Sides swap half a period apart, so the mirrored clock runs half a period ahead.
        "gait_clock": MirrorMap.signs(-1, -1),
    }
    if contract.map_window is not None:
        maps["elevation_map"] = mirror_window(contract.map_window)
    total = MirrorMap((), ())
    for term in contract.observations:
        if term.name not in maps or len(maps[term.name].source) != term.size:
            raise GantryError(f"No mirror image is known for observation '{term.name}' of {term.size} numbers.")
        for _ in range(term.history):
            total = total + maps[term.name]
    return total


ParamsMirror = Callable[[tuple[Tensor, ...], Tensor | slice, tuple[Tensor, Tensor]], None]
"""Mirrors rows of a distribution's parameters, each (N, n), in place, by the action's source and sign."""


def mirror_mean_and_std(params: tuple[Tensor, ...], rows: Tensor | slice, mirror: tuple[Tensor, Tensor]) -> None:
    """Mirror rows of a Gaussian's mean and standard deviation (N, n) in place."""
    mean, std = params
    source, sign = mirror
    _mirror_rows(mean, rows, mirror)
    _mirror_rows(std, rows, (source, sign.abs()))


class RandomMirror:
    """Takes the place of rsl_rl's ``Symmetry`` in PPO: mirrors half of every minibatch in place.

    Args:
        observations: Maps by group.
        action: Map of the actions; None where the actor's group is not among the observations, so that the critic
            alone learns from mirrored rows (its returns are the same on both sides).
        device: Device.
        mirror_params: How the parameters of the actor's distribution are mirrored.
    """

    use_mirror_loss = False
    """rsl_rl asks for it; there is no extra loss."""

    def __init__(
        self,
        observations: dict[str, MirrorMap],
        action: MirrorMap | None,
        device: str,
        mirror_params: ParamsMirror = mirror_mean_and_std,
    ) -> None:
        def tensors(mirror: MirrorMap) -> tuple[Tensor, Tensor]:
            return torch.tensor(mirror.source, device=device), torch.tensor(mirror.sign, device=device)

        self._observations = {group: tensors(mirror) for group, mirror in observations.items()}
        self._action = None if action is None else tensors(action)
        self._mirror_params = mirror_params
        self._zero = torch.zeros((), device=device)

    def augment_batch(self, batch: Any, original_batch_size: int) -> None:
        """Mirror half of a minibatch, drawn anew at every call: rsl_rl shuffles once an update and not once an epoch,
        so that its first half would be the same rows in every epoch."""
        order = torch.randperm(original_batch_size, device=self._zero.device)
        self.mirror(batch, order[: original_batch_size // 2])

    def mirror(self, batch: Any, rows: Tensor | slice) -> None:
        """Mirror rows of a minibatch in place: indices (k,), or a slice."""
        for group, mirror in self._observations.items():
            _mirror_rows(batch.observations[group], rows, mirror)
            # A teacher's answers may be about these instead.
            remembered = getattr(batch, "remembered", None) or {}
            if group in remembered:
                _mirror_rows(remembered[group], rows, mirror)
        if self._action is None:
            return
        _mirror_rows(batch.actions, rows, self._action)
        if getattr(batch, "teacher_actions", None) is not None:
            _mirror_rows(batch.teacher_actions, rows, self._action)
        # The divergence from the old policy is measured on the mirrored rows too, so that policy is mirrored with them.
        if batch.old_distribution_params is not None:
            self._mirror_params(batch.old_distribution_params, rows, self._action)

    @property
    def mirrors_actor(self) -> bool:
        """Whether actors learn from mirrored rows too."""
        return self._action is not None

    def compute_loss(self, actor: Any, batch: Any, original_batch_size: int) -> Tensor:
        """A scalar 0, dimensionless: nothing is added to the loss."""
        return self._zero


def _mirror_rows(values: Tensor, rows: Tensor | slice, mirror: tuple[Tensor, Tensor]) -> None:
    source, sign = mirror
    values[rows] = values[rows][:, source] * sign
