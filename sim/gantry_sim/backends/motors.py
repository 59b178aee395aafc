"""Motors and sensors' mountings of a robot in plain MuJoCo, with the dynamics of one machine."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.model.dynamics import NO_LIMIT_RAD_S, RobotDynamics, load_dynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.backends.sample import History
from gantry_sim.robots.actuated_scene import HAND, SceneIndex

FloatArray = NDArray[np.float64]


FRICTION_IMPEDANCE = 0.99
"""Share of a pull that dry friction takes up at once. With MuJoCo's 0.9 a light leg creeps away at some 0.2 rad/s."""


class Motors:
    """Position loops that run at the physics rate: MuJoCo's affine actuators, ``force = ctrl + b1 q + b2 dq``.

    Args:
        model: Compiled scene of :func:`gantry_sim.robots.actuated_scene.robot_with_motors`; the dynamics are written
            into it.
        index: Of the scene.
        spec: The robot.
        dynamics: Of this machine.

    Raises:
        GantryError: If the dynamics are another robot's.
    """

    def __init__(self, model: mujoco.MjModel, index: SceneIndex, spec: RobotSpec, dynamics: RobotDynamics) -> None:
        dynamics.check_robot(spec)
        joints = index.joint_qvel
        for name, array in (
            ("armature_kg_m2", model.dof_armature),
            ("viscous_friction_nm_s_rad", model.dof_damping),
            ("coulomb_friction_nm", model.dof_frictionloss),
        ):
            array[joints] = dynamics.joint_values(name, spec, array[joints])
        if dynamics.has("coulomb_friction_nm"):
            model.dof_solimp[joints, :2] = FRICTION_IMPEDANCE
        self._model, self._speeds = model, joints
        self._stiffness_share = dynamics.joint_values("stiffness_share", spec)
        self._damping_share = dynamics.joint_values("damping_share", spec)
        self._limit_nm = dynamics.joint_values("effort_limit_nm", spec)
        self.encoder_offset_rad = dynamics.joint_values("encoder_offset_rad", spec)
        """Shape (n,), reading of every encoder minus the true angle."""
        corner, none_left = (
            dynamics.joint_values(name, spec) for name in ("corner_speed_rad_s", "no_load_speed_rad_s")
        )
        self._no_load_rad_s = np.maximum(none_left, corner + 1e-3)
        self._fall_rad_s = self._no_load_rad_s - corner
        self._has_curve = bool(np.any(none_left < NO_LIMIT_RAD_S))
        model.actuator_forcerange[:] = np.stack([-self._limit_nm, self._limit_nm], axis=1)
        self._passive = [spec.joint_index(name) for name in getattr(spec.body, "passive_joints", ())]
        self._places = index.joint_qpos[self._passive]
        self._hands = [model.equality(HAND + spec.joint_names[i]).id for i in self._passive]

    def obey(self, data: mujoco.MjData, command: JointCommand) -> None:
        """Load a command: its constant part goes to ``ctrl``, the gains to the model."""
        stiffness = self._stiffness_share * command.stiffness_nm_rad
        damping = self._damping_share * command.damping_nm_s_rad
        self._model.actuator_biasprm[:, 1] = -stiffness
        self._model.actuator_biasprm[:, 2] = -damping
        target = command.pos_rad - self.encoder_offset_rad
        data.ctrl[:] = command.effort_nm + stiffness * target + damping * command.vel_rad_s
        if self._hands:
            # Joints without a motor are held, as by hand, for as long as the others hold a pose.
            self._model.eq_data[self._hands, 0] = target[self._passive] - self._model.qpos0[self._places]
            data.eq_active[self._hands] = bool(stiffness.any())

    def step(self, data: mujoco.MjData, steps: int) -> None:
        """Step the physics; where torque falls with speed, the limits follow in every step."""
        if not self._has_curve:
            mujoco.mj_step(self._model, data, steps)
            return
        limits = self._model.actuator_forcerange
        for _ in range(steps):
            speed = data.qvel[self._speeds]
            limits[:, 0] = -self._limit_nm * np.clip((self._no_load_rad_s + speed) / self._fall_rad_s, 0.0, 1.0)
            limits[:, 1] = self._limit_nm * np.clip((self._no_load_rad_s - speed) / self._fall_rad_s, 0.0, 1.0)
            mujoco.mj_step(self._model, data)


class ImuMounting:
    """Rotation of the IMU in its mounting, and the age of its readings.

    Args:
        dynamics: Of the machine.
    """

    def __init__(self, dynamics: RobotDynamics) -> None:
        names = ("imu_roll_rad", "imu_pitch_rad", "imu_yaw_rad")
        angles = [dynamics.value(name) for name in names]
        self.delay_s = dynamics.value("imu_delay_s")
        """Age of the readings beyond that of their stamps."""
        self._is_exact = not any(angles)
        self._quat = np.zeros(4)
        mujoco.mju_euler2Quat(self._quat, np.array(angles), "XYZ")
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, self._quat)
        self._matrix = matrix.reshape(3, 3)

    def attitude(self, quat_base_to_world_wxyz: FloatArray) -> FloatArray:
        """The orientation (4,) that the IMU reports of a base at an orientation (4,)."""
        if self._is_exact:
            return quat_base_to_world_wxyz
        seen = np.zeros(4)
        mujoco.mju_mulQuat(seen, quat_base_to_world_wxyz, self._quat)
        return seen

    def vector(self, vector_in_base: FloatArray) -> FloatArray:
        """A vector (3,) of the base's frame as the IMU reports it."""
        return vector_in_base if self._is_exact else self._matrix.T @ vector_in_base


class Machine:
    """Motors, IMU and delays of one machine.

    Args:
        model: Compiled scene, into which the dynamics are written.
        index: Of the scene.
        spec: The robot.
        dynamics: Of the machine, or the path of their file; empty for those of the model.
        timestep_s: Physics step.
        delay_s: Age of every reading.
        command_delay_s: Time between a command and the motors obeying, beyond that of the dynamics.

    Raises:
        GantryError: If the file is refused, or its dynamics are another robot's.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        index: SceneIndex,
        spec: RobotSpec,
        dynamics: RobotDynamics | str,
        *,
        timestep_s: float,
        delay_s: float,
        command_delay_s: float,
    ) -> None:
        if isinstance(dynamics, str):
            dynamics = load_dynamics(dynamics, spec) if dynamics else RobotDynamics(spec.name)
        self.motors = Motors(model, index, spec, dynamics)
        """Position loops."""
        self.imu = ImuMounting(dynamics)
        """Rotation of the IMU."""
        late_s = command_delay_s + dynamics.value("command_delay_s")
        self.command_delay_steps = round(late_s / timestep_s)
        """Physics steps between a command and the motors obeying."""
        self.history = History(round(delay_s / timestep_s), round(self.imu.delay_s / timestep_s))
        """Samples from which readings are made."""
