"""The arm of a manipulation task in plain MuJoCo: a robot backend that sees what lies there and knows when it is done.

Everything lies where the episodes of training lay it for the same seed. The physics is another: every shape of the arm
touches, and steps are shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.kinematics import ArmKinematics
from gantry_deploy.observations.scene import THINGS_SIGNAL, ZONES_SIGNAL
from gantry_deploy.perception.images import Picture
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.model.chain import Chain
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.robots.option_checks import BENCH_CHECKS, camera_names, require_bench_task
from gantry_sim.robots.options import check_options
from gantry_sim.robots.sensor_noise import SensorNoise
from gantry_sim.tasks.manipulation.language.instructions import asked_in
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.workbench import CAMERAS, WORKBENCHES, add_workbench
from gantry_sim.viewing.offscreen_cameras import SceneCameras

if TYPE_CHECKING:
    from torch import Tensor

    from gantry_sim.tasks.manipulation.rules import Start

FloatArray = NDArray[np.float64]

JOINT_POS_NOISE_RAD, JOINT_VEL_NOISE_RAD_S = 5e-4, 0.02
"""Half widths of the usual noise of an arm's encoders; the gripper's in m and m/s."""
OBJECT_NOISE_M = 2e-3
"""Half width of the usual noise of an object's place."""
OTHER_FINGER = "right_finger"
"""The joint that mirrors the gripper's."""


@dataclass
class _Truth:
    """State of a simulation for a task's rule; one row each, as in training."""

    object_pos: Tensor
    object_from_ee: Tensor
    goal_from_object: Tensor
    gripper_m: Tensor
    object_speed: Tensor
    verb: Tensor
    others_moved_m: Tensor


class Bench:
    """A manipulation task around one arm: lays out episodes, and knows how they stand.

    Args:
        task: Its name.
        chain: The arm's geometry.
        seed: Of the episodes.
        vary: Mass and friction differ between episodes, as in training.
        shares: Factors of the object's mass and of all sliding friction, beside what varies.

    Raises:
        UnknownNameError: If there is no such task.
    """

    def __init__(
        self, task: str, chain: Chain, seed: int, vary: bool, shares: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        require_bench_task(task)
        # Loads torch, for training's own rules of where things lie and when a task is done.
        from gantry_sim.tasks.manipulation.rules import RULES

        cfg = LAYOUTS[task]()
        self.layout = WORKBENCHES[cfg.task]
        """What lies on the table."""
        self.episode_s = cfg.episode_s
        """Length of an episode in training."""
        self.goal_in_base_m: FloatArray | None = None
        """Shape (3,), where the object belongs in this episode; None in a task without a goal, or told in words."""
        self.instruction = ""
        """Instruction of this episode in plain words; empty in a task that is told nothing in words."""
        self._start: Start | None = None
        self._rule, self._seed, self._vary, self._shares = RULES[cfg.task](cfg), seed, vary, shares
        self._episode = 0
        self._kinematics = ArmKinematics(chain, np.zeros((1, 1), np.float32))
        self._names = chain.joint_names
        self._defaults: tuple[FloatArray, FloatArray, FloatArray] | None = None

    def begin_at(self, seed: int) -> None:
        """Let the next episode be the first one of a seed."""
        self._seed, self._episode = seed, 0

    def lay(self, model: mujoco.MjModel, data: mujoco.MjData, gripper: str) -> float | None:
        """Lay out the next episode around an arm in its starting pose.

        Returns:
            Where the gripper's joint is if it holds the object from the beginning, m; None if it does not.
        """
        import torch

        from gantry_sim.tasks.manipulation.draws import Draws

        draws = Draws(self._seed, [0], [self._episode], "cpu")
        self._episode += 1
        draws.index(1)  # In training the first number chooses the arm's pose, which here is the default one.
        start = self._start = self._rule.start(draws, torch.from_numpy(self._ee(data)))
        for name, pose in zip(self.layout.thing_bodies, start.things_in_base[0], strict=True):
            data.joint(name).qpos[:] = pose.numpy()
        held = None
        if start.gripper_m is not None:
            held = float(start.gripper_m[0])
            data.joint(gripper).qpos[0], data.joint(OTHER_FINGER).qpos[0] = held, -held
        else:
            data.joint(OTHER_FINGER).qpos[0] = -data.joint(gripper).qpos[0]
        for name, place in zip(self.layout.mocap_bodies, start.fixtures_m[0], strict=True):
            data.mocap_pos[int(model.body(name).mocapid[0])] = place.numpy()
        self.instruction = "" if start.asked is None else start.asked[0].text
        shown = start.asked is None and start.goal_m.shape[1]
        self.goal_in_base_m = start.goal_m[0].numpy().astype(np.float64) if shown else None
        chance = self._rule.cfg.randomize
        mass, friction = float(draws.uniform(*chance.mass)), float(draws.uniform(*chance.friction))
        mass, friction = (mass, friction) if self._vary else (1.0, 1.0)
        self._weigh(model, mass * self._shares[0], friction * self._shares[1])
        return held

    def ask(self, text: str) -> bool:
        """Ask for something else in the scene that is laid; false where the words do not say one thing there."""
        from gantry_sim.tasks.manipulation.rules import Tell

        start, rule = self._start, self._rule
        asked = None if start is None or start.asked is None else asked_in(start.asked[0].scene, text, self.layout)
        if asked is None or start is None or not isinstance(rule, Tell):
            return False
        self._start, self.instruction = rule.asking(start, [asked]), text
        return True

    def things(self, model: mujoco.MjModel, qpos: FloatArray) -> FloatArray:
        """Places and unit quaternions of the things, (T, 7), in the frame of the arm's base, which is the world's."""
        starts = [int(model.joint(name).qposadr[0]) for name in self.layout.thing_bodies]
        return np.stack([qpos[start : start + 7] for start in starts])

    def zones_m(self) -> FloatArray:
        """Places of the zones, (Z, 3), m, in the frame of the arm's base."""
        assert self._start is not None
        return self._start.fixtures_m[0].numpy().astype(np.float64)

    def done(self, model: mujoco.MjModel, data: mujoco.MjData, gripper: str) -> tuple[bool, bool]:
        """Whether the task is done, and whether it is lost for this episode."""
        import torch

        def row(values: FloatArray | list[float]) -> Tensor:
            return torch.from_numpy(np.asarray(values, dtype=np.float32)[None])

        start = self._start
        assert start is not None
        asked = int(start.thing[0])
        places = self.things(model, data.qpos)[:, :3]
        moved = np.linalg.norm(places - start.things_in_base[0, :, :3].numpy(), axis=1)
        goal = start.goal_m[0].numpy()
        truth = _Truth(
            row(places[asked]),
            row(places[asked] - self._ee(data)[0]),
            row(goal - places[asked] if goal.size else goal),
            row([float(data.joint(gripper).qpos[0])])[0],
            row([float(np.linalg.norm(data.joint(self.layout.thing_bodies[asked]).qvel[:3]))])[0],
            start.verb,
            row([float(np.delete(moved, asked).max(initial=0.0))])[0],
        )
        return bool(self._rule.success(truth)[0]), bool(self._rule.lost(truth)[0])  # type: ignore[arg-type]

    def _ee(self, data: mujoco.MjData) -> NDArray[np.float32]:
        """Place of the end effector, (1, 3), m."""
        joints = np.array([[data.joint(name).qpos[0] for name in self._names]], np.float32)
        return self._kinematics.forward(joints)[0]

    def _weigh(self, model: mujoco.MjModel, mass: float, friction: float) -> None:
        """Give the things a mass and everything a friction, in units of what the scene was built with."""
        if self._defaults is None:
            self._defaults = model.body_mass.copy(), model.body_inertia.copy(), model.geom_friction.copy()
        masses, inertias, frictions = self._defaults
        for body in (model.body(name).id for name in self.layout.thing_bodies):
            model.body_mass[body], model.body_inertia[body] = masses[body] * mass, inertias[body] * mass
        model.geom_friction[:, 0] = frictions[:, 0] * friction
        mujoco.mj_setConst(model, mujoco.MjData(model))  # It would put other data into the model's first pose.


class BenchRobot(MujocoRobot):
    """An arm at its workbench. Every reset lays out the next episode; the arm stands in its default pose.

    Args:
        spec: The arm.
        task: Name of a manipulation task, for example ``yam-lift``.
        seed: Of the episodes and of the noise.
        noise: Multiple of the usual noise of joints and object.
        vary: Mass and friction differ between episodes, as in training.
        object_mass_share: Factor of the object's mass, beside what varies.
        object_friction_share: Factor of all sliding friction, beside what varies.
        pictures_px: Rows and columns of the cameras' pictures; 0 for none.
        cameras: Their names with commas between, of ``wrist``, ``front`` and ``side``.
        meshes: Pictures show the arm as it looks; otherwise the simple shapes that stand for it.
        timestep_s: Physics step.
        delay_s: Age of every reading.
        command_delay_s: Time between a command and the motors obeying.
        dynamics: Those of one machine, or the path of their file; empty for those of the model.
        realtime: Follow the machine's monotonic clock.
        visuals: Load the meshes.

    Raises:
        UnknownNameError: If there is no such task, or the robot has no model.
        GantryError: If the robot is no arm, or a number makes no sense.
    """

    OPTION_CHECKS = BENCH_CHECKS

    def __init__(
        self,
        spec: RobotSpec,
        *,
        task: str = "yam-lift",
        seed: int = 0,
        noise: float = 0.0,
        vary: bool = True,
        object_mass_share: float = 1.0,
        object_friction_share: float = 1.0,
        pictures_px: int = 0,
        cameras: str = ",".join(CAMERAS),
        meshes: bool = False,
        timestep_s: float = 0.002,
        delay_s: float = 0.0,
        command_delay_s: float = 0.0,
        dynamics: RobotDynamics | str = "",
        realtime: bool = False,
        visuals: bool = False,
    ) -> None:
        check_options(locals())
        self.task = task
        self._bench = Bench(task, spec.body_as(Chain), seed, vary, (object_mass_share, object_friction_share))
        self._gripper = spec.gripper_joints[0]
        self._object_noise_m = OBJECT_NOISE_M * noise
        self._pictures_px, self._meshes = pictures_px, meshes
        self._cameras = camera_names(cameras)
        self._eyes: SceneCameras | None = None
        super().__init__(
            spec,
            timestep_s=timestep_s,
            noise=SensorNoise(joint_pos_rad=JOINT_POS_NOISE_RAD * noise, joint_vel_rad_s=JOINT_VEL_NOISE_RAD_S * noise),
            delay_s=delay_s,
            command_delay_s=command_delay_s,
            dynamics=dynamics,
            seed=seed,
            realtime=realtime,
            visuals=visuals or meshes,
        )

    def reset(
        self,
        *,
        pos_xy_m: tuple[float, float] = (0.0, 0.0),
        yaw_rad: float = 0.0,
        joint_pos_rad: FloatArray | None = None,
        seed: int | None = None,
    ) -> None:
        """Lay out the next episode, or the first one of another seed; see :meth:`MujocoRobot.reset`."""
        with self._lock:
            super().reset(joint_pos_rad=joint_pos_rad, seed=seed)
            if seed is not None:
                self._bench.begin_at(seed)
            held = self._bench.lay(self.model, self.data, self._gripper)
            if held is not None:
                pose = self.data.qpos[self._index.joint_qpos].copy()
                pose[self.spec.joint_index(self._gripper)] = self.spec.array("lower_rad")[-1]
                self._machine.motors.obey(
                    self.data, JointCommand.position(self.spec, pose)
                )  # Told to close, it keeps what it holds.
            mujoco.mj_forward(self.model, self.data)
            self._machine.history.restart(self._sample())

    @property
    def episode_s(self) -> float:
        """Length of an episode of the task in training."""
        return self._bench.episode_s

    @property
    def goal_in_base_m(self) -> FloatArray | None:
        """Shape (3,), place where the object belongs, in the base frame [m]; None in a task without a goal, and in one
        whose instruction says it.
        """
        return self._bench.goal_in_base_m

    @property
    def instruction(self) -> str:
        """Instruction of the episode in plain words; empty in a task that is told nothing in words."""
        return self._bench.instruction

    def ask(self, instruction: str) -> bool:
        """Ask for something else in the scene that is laid, as the words say it at its start; false where they do not
        say one thing there.
        """
        with self._lock:
            return self._bench.ask(instruction)

    @property
    def task_done(self) -> bool:
        """Whether the task is done now, the truth."""
        with self._lock:
            return self._bench.done(self.model, self.data, self._gripper)[0]

    @property
    def task_lost(self) -> bool:
        """Whether the object is out of reach, or another thing was moved, the truth."""
        with self._lock:
            return self._bench.done(self.model, self.data, self._gripper)[1]

    def read_pictures(self) -> Mapping[str, Picture]:
        """Pictures of the cameras now; nothing where pictures are off.

        Raises:
            GantryError: If this machine cannot draw off screen.
        """
        if not self._pictures_px:
            return {}
        with self._lock:
            self._require_connection()
            self._catch_up()
            if self._eyes is None:
                self._eyes = SceneCameras(self.model, self._cameras, self._pictures_px, meshes=self._meshes)
            mujoco.mj_kinematics(self.model, self.data)
            mujoco.mj_camlight(self.model, self.data)
            stamp_s = self._time_s()
            return {name: Picture(stamp_s, pixels) for name, pixels in self._eyes.see(self.data).items()}

    def close(self) -> None:
        """Release the robot and what draws its pictures."""
        super().close()
        with self._lock:
            if self._eyes is not None:
                self._eyes.close()
                self._eyes = None

    def _furnish(self, scene: mujoco.MjSpec) -> None:
        # As in training; with MuJoCo's own pyramidal friction a grasped object creeps out of the hand.
        scene.option.cone, scene.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10.0
        add_workbench(scene, self._bench.layout)

    def _state(self, sample: object) -> RobotState:
        things = self._bench.things(self.model, sample.qpos)  # type: ignore[attr-defined]
        if self._object_noise_m:
            things[:, :3] += self._object_noise_m * self._rng.uniform(-1.0, 1.0, (len(things), 3))
        state = super()._state(sample)  # type: ignore[arg-type]
        if not self._bench.layout.is_told:
            return replace(state, object_pose_in_base=things[0])
        scene = {THINGS_SIGNAL: things[:, :3].ravel(), ZONES_SIGNAL: self._bench.zones_m().ravel()}
        return replace(state, extra={**state.extra, **scene})
