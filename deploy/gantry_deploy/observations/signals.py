"""Signals of an actor's observation, and the type of its terms: shared by all files that hold terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from array_api_compat import device

from gantry_deploy.actions.kinematics import ArmKinematics
from gantry_deploy.contract.arm_spec import ArmSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.mirrors import MirrorMap
from gantry_deploy.observations.route import OnRoute, RouteView
from gantry_deploy.observations.surroundings import Surroundings
from gantry_mapping.elevation.ops import namespace

Array = Any


@dataclass
class Signals:
    """Everything an actor may see, with a leading batch dimension N; n is the number of joints."""

    joint_pos_rad: Array
    """Shape (N, n)."""
    joint_vel_rad_s: Array
    """Shape (N, n)."""
    quat_base_to_world_wxyz: Array
    """Shape (N, 4), unit quaternions."""
    ang_vel_base_in_base_rad_s: Array
    """Shape (N, 3)."""
    command: Array
    """Shape (N, c), after :func:`gantry_deploy.actions.commands.shape_command`."""
    last_action: Array
    """Shape (N, n), the network's last output; zeros at the start."""
    time_s: Array
    """Shape (N,), since the policy (or the episode) started."""
    lin_vel_base_in_base_m_s: Array | None = None
    """Shape (N, 3), where the robot knows it."""
    elevation_map: Array | None = None
    """Shape (N, rows, cols, channels), the contract's map window, where the policy looks at one."""
    joint_target_rad: Array | None = None
    """Shape (N, n), the last joint targets, where a term asks for them."""
    start_joint_pos_rad: Array | None = None
    """Shape (N, n), joints as they were when the episode (or the policy) started, where a term asks for them."""
    object_pose_in_base: Array | None = None
    """Shape (N, 7), place in m and unit quaternion, w first, of what an arm handles, in the arm's base frame."""
    ee_pose_in_base: tuple[Array, Array] | None = None
    """Place (N, 3), m, and rotation (N, 3, 3) of an arm's end effector; found from the joints if it is not given."""
    pose_in_world: Array | None = None
    """Shape (N, 3), x and y in m and yaw in rad of a car's ``base_link``, the middle of its rear axle."""
    surroundings: Surroundings | None = None
    """Surroundings of a car beside its own state, in the frame of ``pose_in_world``."""
    route: RouteView | None = None
    """Position of a car on its route; found from pose and surroundings if it is not given."""
    objects_on_route: tuple[Array, OnRoute] | None = None
    """The objects that a car sees, (N, K, 7), and where they are on its route; found likewise."""
    extra: Mapping[str, Array] = field(default_factory=dict)
    """Signals of robots of other packages by name, each (N, k); see
    :attr:`gantry_hardware.backends.state.RobotState.extra`."""


@dataclass(frozen=True)
class TermConstants:
    """Constants of terms beside the signals, as arrays on the signals' device."""

    contract: PolicyContract
    """The contract that is being obeyed."""
    default_pos_rad: Array
    """Shape (1, n)."""
    _rows: dict[tuple[float, ...], Array] = field(default_factory=dict, repr=False, compare=False)

    def row(self, numbers: tuple[float, ...]) -> Array:
        """Numbers (k,) as an array (1, k) of the same namespace, dtype and device; made once and kept."""
        if numbers not in self._rows:
            like = self.default_pos_rad
            self._rows[numbers] = namespace(like).asarray([numbers], dtype=like.dtype, device=device(like))
        return self._rows[numbers]

    @cached_property
    def kinematics(self) -> tuple[ArmKinematics, Array]:
        """The arm's geometry, and the places (joints of the chain,) of its joints among the contract's.

        Raises:
            ContractError: If the contract's body is no arm.
        """
        like, chain, names = self.default_pos_rad, self.contract.body_as(ArmSpec).chain, self.contract.joint_names
        xp, ids = namespace(like), [names.index(name) for name in chain.joint_names]
        return ArmKinematics(chain, like), xp.asarray(ids, dtype=xp.int64, device=device(like))


@dataclass(frozen=True)
class TermInfo:
    """A term's function and what the contract says of its raw signal."""

    function: Callable[[Signals, TermConstants], Array]
    """Computes the term."""
    kind: str
    """Semantic kind in LEAPP's vocabulary."""
    frame: str
    """Frame, or empty."""
    unit: str
    """Unit, or empty."""
    mirror: tuple[float, ...] | Callable[[PolicyContract], MirrorMap | None] | None = None
    """Left-right mirror image: the sign of each number, or a function of the contract; None where none is known."""
    signals: Mapping[str, int] = field(default_factory=dict)
    """Signals that not every robot reports and that the term needs, with the number of values of each: fields of
    :class:`~gantry_hardware.backends.state.RobotState`, or names in its ``extra``. Golden data hold them."""
    scale: float = 1.0
    """Usual factor."""
    history: int = 1
    """Usual number of frames."""

    def mirror_of(self, contract: PolicyContract) -> MirrorMap | None:
        """Mirror image of the term under a contract; None where none is known."""
        return (
            self.mirror(contract)
            if callable(self.mirror)
            else None
            if self.mirror is None
            else MirrorMap.signs(*self.mirror)
        )


def given(value: Array | None, term: str, what: str) -> Array:
    """A signal that a term cannot do without, of any shape and unit, unchanged.

    Raises:
        ContractError: If it is None, naming the term and what it needs.
    """
    if value is None:
        raise ContractError(f"The observation '{term}' needs {what}; there is none.")
    return value


def ee_pose_of(signals: Signals, constants: TermConstants) -> tuple[Array, Array]:
    """Place (N, 3), m, and rotation (N, 3, 3) of the end effector in the base frame, found from the joints once."""
    if signals.ee_pose_in_base is None:
        kinematics, ids = constants.kinematics
        joints = namespace(signals.joint_pos_rad).take(signals.joint_pos_rad, ids, axis=1)
        signals.ee_pose_in_base = kinematics.forward(joints)
    return signals.ee_pose_in_base
