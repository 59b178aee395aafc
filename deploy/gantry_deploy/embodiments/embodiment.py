"""Base of embodiments: what the runtime asks of a kind of robot body, with answers that fit most.

An embodiment is found by the name that a contract and a :class:`~gantry_hardware.model.spec.RobotSpec` share, in
the entry-point group ``gantry.embodiments``. Parts that need more than contract and observations are named by text,
``module:name``, and imported when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.decoder import GROUP, ActionDecoder, ActionKind, DecoderFactory
from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.bounds import MIN_RATE_HZ, check_joint_action, require, require_length
from gantry_deploy.contract.gait_check import check_gait_numbers, check_gait_shape
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.surroundings import Surroundings
from gantry_deploy.perception.road import SurroundingsSource
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError, unknown_name_text
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.plugins import entry_points, load_named, load_plugin


class Embodiment:
    """One kind of robot body; subclasses override what is different. Instances hold no state."""

    name: str
    """Name in the registry."""
    noun: str
    """A robot of the kind, for messages: ``an arm``."""
    action_kinds: tuple[ActionKind, ...]
    """Action kinds of its policies, beside those that other packages add."""
    body_type: type | None = None
    """Dataclass of a contract's ``body``; None for contracts without one."""
    robot_body_type: type | None = None
    """Class of a :class:`~gantry_hardware.model.spec.RobotSpec`'s ``body``; None where any will do."""
    min_rate_hz: float = MIN_RATE_HZ
    """Slowest rate of a policy."""

    base_moves: bool = True
    """Whether the base moves: it has an IMU, can tilt, and recordings hold its attitude and turning rate."""
    has_accelerometer_check: bool = False
    """Whether attitude and accelerometer are compared before the robot is powered."""
    needs_odometry: bool = False
    """Whether a state without finite position and velocity of the base is a fault."""
    holds_position: bool = False
    """Whether the robot is held where it is, instead of damped or braked, when nothing may move it."""
    walks: bool = False
    """Whether the robot stands up and walks, so that its tracking of velocities is worth telling."""
    repeats_episodes: bool = False
    """Whether recorded episodes are repeated through the whole runner, since targets or surroundings continue."""

    simulated_backend: str = "mujoco"
    """Backend that simulates such robots, unless asked otherwise."""
    start_words: str = "stand up and walk"
    """Motion of a robot that is started, for messages."""
    idle_commands: str = "gantry_deploy.control.idle_commands:JointIdleCommands"
    """Maker of the commands while no policy acts: (spec, contract or None, safety configuration, dt_s)."""
    perturbations: str = ""
    """Maker of the perturbations of `gantry check`, (contract, spec) -> tuple of
    :class:`~gantry_deploy.evaluation.perturbations.perturbation.Perturbation`; empty for none."""
    operator_map: str = "gantry_deploy.embodiments.operator_maps:CommandMap"
    """Maker of the map from an operator's device to actions: (contract)."""
    ros_robot: str = "gantry_ros.robots.ros_robot:RosRobot"
    """Backend behind ROS 2 topics, with a class method ``from_parameters``."""
    ros_surroundings: str = ""
    """Source of surroundings behind ROS 2 topics: (contract, host, robot, values); empty for none."""
    sim_node: str = "sim_robot_node"
    """ROS 2 node that simulates such a robot."""
    identification: str = "gantry_sim.identification.legs:identify"
    """Identification of the dynamics of one such machine: (spec, logs, choices), see ``gantry identify``."""
    launch: str = "sim_walk"
    """Launch description that simulates such a robot over ROS 2."""
    driver_launches: tuple[str, ...] = ("quadruped", "humanoid")
    """Launch descriptions in which the policy node drives such a robot itself."""
    without: ClassVar[Mapping[str, str]] = {}
    """Command, without ``gantry``, that does not take such robots, and why."""

    def require(self, command: str) -> None:
        """Refuse a command that does not take such robots, see :attr:`without`.

        Raises:
            GantryError: With the reason.
        """
        if command in self.without:
            raise GantryError(f"'gantry {command}' does not take {self.noun}: {self.without[command]}.")

    def scenario(self, contract: PolicyContract) -> str:
        """Episodes of ``gantry check``: ``module:Class`` of a :class:`gantry_deploy.evaluation.scenario.Scenario`."""
        raise NotImplementedError

    def action_kind(self, kind: str) -> ActionKind:
        """Look an action kind up, of the embodiment itself or added by another package.

        Raises:
            ContractError: With the near miss and the kinds that there are.
        """
        found = {item.kind: item for item in self.action_kinds}
        if kind not in found:
            for entry in entry_points(group=GROUP):
                added = load_plugin(entry, "Action kind", ContractError)
                if added.embodiment == self.name:
                    found.setdefault(added.kind, added)
        if kind not in found:
            raise ContractError(f"The contract: {unknown_name_text(f'action.kind of {self.noun}', kind, found)}")
        return found[kind]

    def make_decoder(self, contract: PolicyContract, like: Any, spec: RobotSpec | None = None) -> ActionDecoder:
        """The decoder of a contract's actions.

        Args:
            contract: Of this embodiment.
            like: Any floating array of the namespace, dtype and device to work on.
            spec: The robot that obeys, whose limits count where they are smaller.
        """
        make: DecoderFactory = load_named(self.action_kind(contract.action.kind).decoder)
        return make(contract, like, spec)

    def check_contract(self, contract: PolicyContract) -> None:
        """Refuse a contract whose parts do not fit each other, whatever their numbers.

        Raises:
            ContractError: With the first part that does not fit.
        """
        kind = self.body_type
        if type(contract.body) is not (type(None) if kind is None else kind):
            expected = "none" if kind is None else f"a {kind.__name__}"
            raise ContractError(
                f"The contract's body is a {type(contract.body).__name__}, expected {expected} for {self.noun}."
            )
        numbers = len(self.action_kind(contract.action.kind).labels(contract))
        require_length("action.scale", contract.action.scale, numbers)
        require_length("action.offset_rad", contract.action.offset_rad, numbers)
        if contract.gait is not None:
            check_gait_shape(contract, contract.gait)

    def check_numbers(self, contract: PolicyContract) -> None:
        """Refuse numbers of a contract that no such robot may be moved with; all are finite and in range.

        Raises:
            ContractError: With the field, the value, and what was expected.
        """
        if contract.action.kind == JOINT_TARGET:
            check_joint_action(contract.action, contract.joint_limits, relative=self.is_relative(contract))
        if contract.gait is not None:
            check_gait_numbers(contract, contract.gait)

    def check_robot(self, contract: PolicyContract, spec: RobotSpec) -> None:
        """Refuse a robot whose body is another than the contract's; names and joints are the same.

        Raises:
            ContractError: With both sides.
        """

    def is_relative(self, contract: PolicyContract) -> bool:
        """Whether actions of joints are added to the last targets."""
        return False

    def rest_state(self, contract: PolicyContract) -> RobotState:
        """A robot at rest in the contract's default pose, for a first step before anything moves."""
        n = len(contract.joint_names)
        return RobotState(
            stamp_s=0.0,
            joint_pos_rad=np.array(contract.default_pos_rad),
            joint_vel_rad_s=np.zeros(n),
            joint_effort_nm=np.zeros(n),
            quat_base_to_world_wxyz=np.array([1.0, 0.0, 0.0, 0.0]),
            ang_vel_base_in_base_rad_s=np.zeros(3),
            lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, 9.81]),
            pos_base_in_world_m=np.zeros(3) if self.needs_odometry else None,
            lin_vel_base_in_base_m_s=np.zeros(3),
        )

    def rest_surroundings(self, contract: PolicyContract) -> Surroundings | None:
        """Surroundings at rest, for that step; None for a robot that sees none."""
        return None

    def rehearsal(self, contract: PolicyContract) -> list[NDArray[np.float64]]:
        """Commands (c,) of the steps that are tried before a robot moves, in the contract's units."""
        return [np.zeros(len(contract.command.names))]

    def body_of_teacher(self, contract: PolicyContract, teacher: PolicyContract) -> Any:
        """The body that a teacher must have been trained with, to teach a student that has this contract.

        What the teacher does not observe may be as it was for the teacher.
        """
        return contract.body

    def gripper_joint(self, contract: PolicyContract) -> str:
        """Joint of the gripper, whose unit is m; empty for none."""
        return ""

    def gripper_range_m(self, contract: PolicyContract) -> tuple[float, float] | None:
        """Positions of a closed and an open gripper, m; None without one."""
        return None

    def backend_options(self, contract: PolicyContract, backend: str) -> dict[str, Any]:
        """Options of a backend that suit a policy; none for another one than :attr:`simulated_backend`."""
        return self.simulated_options(contract) if backend == self.simulated_backend else {}

    def simulated_options(self, contract: PolicyContract) -> dict[str, Any]:
        """Options of :attr:`simulated_backend`, such as the task and the sensors that the policy needs."""
        return {}

    def check_backend(self, contract: PolicyContract, backend: str) -> None:
        """Refuse a backend that cannot show what the policy sees, before it is built.

        Raises:
            ContractError: With what can.
        """

    def surroundings_source(self, contract: PolicyContract, robot: Robot) -> SurroundingsSource | None:
        """Source of what the policy sees around a simulated robot; None for a policy that needs none.

        Raises:
            ContractError: If the policy needs some and the robot tells of none.
        """
        return None

    def require_body(self, spec: RobotSpec) -> None:
        """Refuse a robot that has not what the embodiment needs.

        Raises:
            ContractError: With what it has.
        """
        kind = self.robot_body_type
        require(
            kind is None or isinstance(spec.body, kind),
            f"robot '{spec.name}', {self.noun}: body",
            type(spec.body).__name__,
            "" if kind is None else f"a {kind.__name__}",
        )
