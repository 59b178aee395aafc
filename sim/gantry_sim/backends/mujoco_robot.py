"""A robot in plain MuJoCo, behind the same interface as one of metal: numpy in, numpy out, its own clock.

The motors' position loops run at the physics rate, as they do inside a real robot's motor controllers: MuJoCo's affine
actuators evaluate ``ff + kp (q* - q) + kd (dq* - dq)`` at every physics step and clip it to the torque limit.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.evaluation.metrics import has_fallen
from gantry_deploy.perception.maps import DepthFrame
from gantry_hardware.backends.limits import CommandLimiter
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import RobotError
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.backends.motors import Machine
from gantry_sim.backends.sample import Sample
from gantry_sim.robots.actuated_scene import SceneIndex, height_over_ground_m, robot_with_motors, rotate_into_base
from gantry_sim.robots.depth_camera import DepthNoise, DepthSensor, head_camera
from gantry_sim.robots.option_checks import TERRAIN_CHECKS
from gantry_sim.robots.options import check_options
from gantry_sim.robots.sensor_noise import SensorNoise
from gantry_sim.viewing.camera import TrackingCamera

__all__ = ["MujocoRobot", "SensorNoise"]

FloatArray = NDArray[np.float64]

MAX_LAG_S = 0.25
"""In real time, physics that falls further behind the clock than this skips the rest instead of chasing it."""


class MujocoRobot:
    """Implements :class:`gantry_hardware.backends.backend.Robot`.

    The clock runs in lock-step: :meth:`sleep_until` steps the physics and returns at once. Until the first command the
    robot holds its default pose. All methods may be called from several threads.

    Args:
        spec: Which robot; its name must have a model in :mod:`gantry_sim.robots.models`.
        timestep_s: Physics step.
        noise: Sensor noise; a number is that multiple of :meth:`SensorNoise.usual`.
        delay_s: Age of every reading, rounded to physics steps; ``stamp_s`` tells the truth about it.
        command_delay_s: Time between :meth:`write` and the motors obeying, rounded to physics steps.
        friction: Sliding friction between the feet and the floor.
        ground_softness_s: Time constant with which the ground gives way under the feet; 0 for the model's own, 20 ms.
        added_mass_kg: Payload at the base's centre of mass.
        dynamics: Those of one machine, or the path of their file; empty for those of the model. Its delay adds to
            ``command_delay_s``.
        seed: Of the sensor noise.
        realtime: Follow the machine's monotonic clock instead of running in lock-step.
        fixed_base: Hang the robot by its base above the floor, as from a gantry.
        visuals: Load the meshes that :meth:`render` shows; without them starting is faster.
        terrain: A tile to walk along x on, :class:`gantry_sim.robots.terrain_scene.TerrainCfg`; empty for a flat floor.
        terrain_difficulty: 0 to 1.
        terrain_seed: Of the terrain.
        camera: Whether the depth camera in its head is on.
        camera_rate_hz: Pictures per second.
        camera_delay_s: Between a picture and :meth:`read_depth` handing it out.
        camera_noise: Multiple of :meth:`gantry_sim.robots.depth_camera.DepthNoise.usual`.

    Raises:
        UnknownNameError: If the robot has no MuJoCo model or no camera, or if there is no such terrain.
        GantryError: If a number makes no sense.
    """

    simulated = True
    """Moves no robot of metal."""
    OPTION_CHECKS = TERRAIN_CHECKS

    def __init__(
        self,
        spec: RobotSpec,
        *,
        timestep_s: float = 0.002,
        noise: SensorNoise | float = 0.0,
        delay_s: float = 0.0,
        command_delay_s: float = 0.0,
        friction: float = 1.0,
        ground_softness_s: float = 0.0,
        added_mass_kg: float = 0.0,
        dynamics: RobotDynamics | str = "",
        seed: int = 0,
        realtime: bool = False,
        fixed_base: bool = False,
        visuals: bool = True,
        terrain: str = "",
        terrain_difficulty: float = 0.5,
        terrain_seed: int = 0,
        camera: bool = False,
        camera_rate_hz: float = 15.0,
        camera_delay_s: float = 0.02,
        camera_noise: float = 0.0,
    ) -> None:
        check_options(locals())
        self.spec = spec
        self.noise = noise if isinstance(noise, SensorNoise) else SensorNoise.usual(noise)
        self.realtime = realtime
        self.clamped: list[str] = []
        """What the limits changed in the newest command."""
        ground = {"friction": friction, "ground_softness_s": ground_softness_s}
        self.model = robot_with_motors(
            spec,
            timestep_s=timestep_s,
            **ground,
            added_mass_kg=added_mass_kg,
            fixed_base=fixed_base,
            visuals=visuals,
            terrain=terrain,
            terrain_difficulty=terrain_difficulty,
            terrain_seed=terrain_seed,
            furnish=self._furnish,
        )
        self.depth_cameras = (head_camera(spec.name),) if camera else ()
        sensor = (camera_rate_hz, camera_delay_s, DepthNoise.usual(camera_noise))
        self._depth = [DepthSensor(self.model, item, *sensor) for item in self.depth_cameras]
        self.data = mujoco.MjData(self.model)
        self._index = SceneIndex(self.model, spec)
        self.goals_in_world_m = self._index.goals_in_world_m
        self._limiter, self._dt_s = CommandLimiter(spec), timestep_s
        delays = {"timestep_s": timestep_s, "delay_s": delay_s, "command_delay_s": command_delay_s}
        self._machine = Machine(self.model, self._index, spec, dynamics, **delays)
        self._rng = np.random.default_rng(seed)
        self._lock, self._connected = threading.RLock(), False
        self._camera: TrackingCamera | None = None
        self._steps = 0
        self._origin_s = time.monotonic() if realtime else 0.0
        self._pending: deque[tuple[int, JointCommand]] = deque()
        self._reading: tuple[Sample, RobotState] | None = None
        self.reset()

    # -- the Robot interface -------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Take the robot into service; a state is there at once."""
        with self._lock:
            if self.realtime and not self._connected:
                self._origin_s = time.monotonic() - self._steps * self._dt_s
            self._connected = True

    def now_s(self) -> float:
        """Time on the robot's clock, which :meth:`reset` does not turn back."""
        return time.monotonic() if self.realtime else self._time_s()

    def sleep_until(self, time_s: float) -> None:
        """Step the physics up to ``time_s``, in real time once that moment has come."""
        if self.realtime:
            time.sleep(max(0.0, time_s - time.monotonic()))
            self._catch_up()
            return
        with self._lock:
            self._advance(math.ceil((time_s - self._time_s()) / self._dt_s - 1e-6))

    def read(self) -> RobotState:
        """The newest reading; reading twice at the same instant gives the same numbers.

        Raises:
            RobotError: If not connected.
        """
        with self._lock:
            self._require_connection()
            self._catch_up()
            sample = self._machine.history.joints
            if self._reading is None or self._reading[0] is not sample:
                self._reading = (sample, self.noise.apply(self._state(sample), self._rng))
            return self._reading[1]

    def write(self, command: JointCommand) -> JointCommand:
        """Hand a command to the motors; returns it after the joints' limits.

        Raises:
            RobotError: If not connected, or if the command's shapes or numbers are wrong; nothing changes then.
        """
        with self._lock:
            self._require_connection()
            limited, self.clamped = self._limiter.clamp(command)
            self._catch_up()
            self._pending.append((self._steps + self._machine.command_delay_steps, limited))
            return limited

    def close(self) -> None:
        """Release the robot."""
        with self._lock:
            self._connected = False
            if self._camera is not None:
                self._camera.close()
                self._camera = None

    def read_depth(self) -> list[DepthFrame]:
        """The depth images that have arrived since the last call, with the true pose at which they were taken.

        Pictures are taken by this call, so call it at least as often as the camera's rate.

        Raises:
            RobotError: If not connected.
        """
        with self._lock:
            self._require_connection()
            self._catch_up()
            now_s, frames = self._time_s(), []
            for sensor in self._depth:
                if sensor.is_due(now_s):
                    sensor.take(self.data, now_s, *self._index.base_pose(self.model, self.data.qpos), self._rng)
                frames += sensor.arrived(now_s)
            return frames

    # -- what only a simulated robot can do ----------------------------------------------------------------------

    def reset(
        self,
        *,
        pos_xy_m: tuple[float, float] = (0.0, 0.0),
        yaw_rad: float = 0.0,
        joint_pos_rad: FloatArray | None = None,
        seed: int | None = None,
    ) -> None:
        """Put the robot down at rest, its lowest foot touching the floor, holding its pose until a command comes.

        Args:
            pos_xy_m: Where in the world; a fixed base stays where it is.
            yaw_rad: Heading; a fixed base keeps its own.
            joint_pos_rad: Shape (n,), pose; the default pose if not given.
            seed: Starts the sensor noise afresh; otherwise it goes on.
        """
        pose = self.spec.array("default_rad") if joint_pos_rad is None else np.asarray(joint_pos_rad, np.float64)
        with self._lock:
            if seed is not None:
                self._rng = np.random.default_rng(seed)
            mujoco.mj_resetData(self.model, self.data)
            self.data.qpos[self._index.joint_qpos] = pose
            if self._index.is_free:
                self.data.qpos[:7] = (*pos_xy_m, 0.0, math.cos(yaw_rad / 2.0), 0.0, 0.0, math.sin(yaw_rad / 2.0))
                mujoco.mj_kinematics(self.model, self.data)
                self.data.qpos[2] = self._index.put_down_height_m(self.model, self.data)
            self._machine.motors.obey(self.data, JointCommand.position(self.spec, pose))
            mujoco.mj_forward(self.model, self.data)
            self._pending.clear()
            self._reading = None
            for sensor in self._depth:
                sensor.restart()
            # A robot that has just been put down touches the floor without pressing on it yet; at rest it would.
            self._machine.history.restart(replace(self._sample(), lin_acc_m_s2=self._gravity_reaction()))

    def push(self, vel_change_in_world_m_s: FloatArray) -> None:
        """Change the base's velocity at once by (3,) [m/s], along the world's axes, as a short push does."""
        with self._lock:
            self.set_velocity(self.data.qvel[:3] + vel_change_in_world_m_s, self.data.qvel[3:6])

    def set_velocity(self, vel_base_in_world_m_s: FloatArray, ang_vel_base_in_base_rad_s: FloatArray) -> None:
        """Give the base this velocity (3,) [m/s], along the world's axes, and this angular velocity (3,) [rad/s], along
        the base's axes, from now on.
        """
        with self._lock:
            if not self._index.is_free:
                raise RobotError(f"'{self.spec.name}' hangs by a fixed base and cannot be pushed.")
            self.data.qvel[:3] = vel_base_in_world_m_s
            self.data.qvel[3:6] = ang_vel_base_in_base_rad_s

    @property
    def pos_base_in_world_m(self) -> FloatArray:
        """Shape (3,), m, in the world frame, the truth now."""
        return self._index.base_pose(self.model, self.data.qpos)[0].copy()

    @property
    def quat_base_to_world_wxyz(self) -> FloatArray:
        """Shape (4,), unit quaternion from the base to the world frame, the truth now."""
        return self._index.base_pose(self.model, self.data.qpos)[1].copy()

    @property
    def true_lin_vel_base_in_base_m_s(self) -> FloatArray:
        """Shape (3,), m/s, the truth now: velocity of the base's origin in its own frame."""
        return self._index.base_velocity(self.data.qpos, self.data.qvel)[0]

    @property
    def true_ang_vel_base_in_base_rad_s(self) -> FloatArray:
        """Shape (3,), rad/s, in the base frame, the truth now."""
        return self._index.base_velocity(self.data.qpos, self.data.qvel)[1]

    @property
    def base_height_m(self) -> float:
        """Height of the base's origin above the ground that it walks on, now; -inf over nothing."""
        pos = self.pos_base_in_world_m
        if self._index.is_flat:
            return float(pos[2])
        with self._lock:
            return height_over_ground_m(self.model, self.data, pos, self.quat_base_to_world_wxyz)

    @property
    def has_fallen(self) -> bool:
        """Whether the base is now below the spec's fall height, or tilted beyond FALL_TILT_RAD, or lost to NaN."""
        quat, height_m = self.quat_base_to_world_wxyz[None], np.array([self.base_height_m])
        return bool(has_fallen(quat, height_m, self.spec.fall_height_m)[0])

    def render(self, width: int = 640, height: int = 360) -> NDArray[np.uint8]:
        """A picture, uint8 (height, width, 3), of the robot now, from a camera that follows it.

        Raises:
            GantryError: If this machine cannot draw off screen.
        """
        with self._lock:
            if self._camera is not None and self._camera.size_px != (width, height):
                self._camera.close()
                self._camera = None
            if self._camera is None:
                self._camera = TrackingCamera(self.model, width, height, self.spec.base_height_m)
            mujoco.mj_kinematics(self.model, self.data)
            return self._camera.picture(self.data, self.pos_base_in_world_m)

    def _furnish(self, scene: mujoco.MjSpec) -> None:
        """Lay further things into the scene; for robots that stand somewhere else than on a floor."""

    # -- physics -------------------------------------------------------------------------------------------------

    def _time_s(self) -> float:
        return self._origin_s + self._steps * self._dt_s

    def _catch_up(self) -> None:
        """In real time, step the physics to the present; in lock-step the physics is the present."""
        if not self.realtime:
            return
        with self._lock:
            lag_s = time.monotonic() - self._time_s()
            if lag_s > MAX_LAG_S:
                self._origin_s += lag_s - MAX_LAG_S
                lag_s = MAX_LAG_S
            self._advance(math.floor(lag_s / self._dt_s))

    def _advance(self, steps: int) -> None:
        end = self._steps + steps
        while self._steps < end:
            while self._pending and self._pending[0][0] <= self._steps:
                self._machine.motors.obey(self.data, self._pending.popleft()[1])
            # One by one where readings are delayed, since each step's reading will be wanted later.
            delayed = self._machine.history.needs_every_step
            stop = self._steps + 1 if delayed else end
            if self._pending:
                stop = min(stop, self._pending[0][0])
            self._machine.motors.step(self.data, stop - self._steps)
            self._steps = stop
            if delayed or stop == end:
                self._machine.history.add(self._sample())

    def _sample(self) -> Sample:
        felt = self.data.sensordata[self._index.accelerometer] if self._index.is_free else self._gravity_reaction()
        return Sample.take(self.data, self._time_s(), felt)

    def _gravity_reaction(self) -> FloatArray:
        """Reading of the accelerometer at rest, (3,); MuJoCo's reads nothing on a base that is fixed to the world."""
        return rotate_into_base(self.quat_base_to_world_wxyz, -self.model.opt.gravity)

    def _state(self, sample: Sample) -> RobotState:
        pos, _ = self._index.base_pose(self.model, sample.qpos)
        lin_vel, _ = self._index.base_velocity(sample.qpos, sample.qvel)
        felt = self._machine.history.imu
        _, quat = self._index.base_pose(self.model, felt.qpos)
        _, ang_vel = self._index.base_velocity(felt.qpos, felt.qvel)
        return RobotState(
            stamp_s=sample.time_s,
            joint_pos_rad=sample.qpos[self._index.joint_qpos] + self._machine.motors.encoder_offset_rad,
            joint_vel_rad_s=sample.qvel[self._index.joint_qvel],
            joint_effort_nm=sample.effort_nm,
            quat_base_to_world_wxyz=self._machine.imu.attitude(quat),
            ang_vel_base_in_base_rad_s=self._machine.imu.vector(ang_vel),
            lin_acc_base_in_base_m_s2=self._machine.imu.vector(felt.lin_acc_m_s2),
            pos_base_in_world_m=pos,
            lin_vel_base_in_base_m_s=lin_vel,
            foot_contact=self._index.feet_on_ground(sample.contact_geoms),
        )

    def _require_connection(self) -> None:
        if not self._connected:
            raise RobotError(f"The MuJoCo robot '{self.spec.name}' is not connected; call connect() first.")
