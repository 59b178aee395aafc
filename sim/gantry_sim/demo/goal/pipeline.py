"""The demo of a policy that walks to goals by a map: camera, mapping, policy and operator over ROS 2, by terrain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from gantry_deploy.bundle.bundle import Bundle, load_bundle
from gantry_deploy.contract.policy_contract import BODY_POSE, PolicyContract
from gantry_deploy.control.goals import Goal
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.gate import Stage, check_static
from gantry_deploy.report import encode_mp4
from gantry_deploy.report.attention import AttentionRollout, film_frames
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_hardware.spec import RobotSpec
from gantry_hardware.whole_files import write_whole
from gantry_sim.demo import walk as walks
from gantry_sim.demo.goal.measured import MeasuredGoalWalk, attention_of, measure_goal_walk, rerun_difference
from gantry_sim.demo.goal.outcome import (
    ATTENTION_VIDEO,
    FLAT,
    HELD_OUT,
    Crossing,
    GoalDemoConfig,
    GoalOutcome,
    in_words,
)
from gantry_sim.demo.goal.page import build_goal_page, goal_result
from gantry_sim.demo.goal.walk import MAPPING, ROBOT, goal_walk_in_process, goal_walk_over_ros
from gantry_sim.demo.pipeline import FPS, REPORT, RESULT, VIDEO, Display
from gantry_sim.robots.actuated_scene import SceneIndex, ground_height_m, robot_with_motors
from gantry_sim.robots.terrain_names import terrain_name
from gantry_sim.robots.terrain_scene import TerrainCfg
from gantry_sim.terrains import training_kinds
from gantry_sim.training.run_config import write_json
from gantry_sim.training.run_validation import read_run_file
from gantry_sim.viewing.attention import goal_ahead
from gantry_sim.viewing.camera import Arrow
from gantry_sim.viewing.replay import Poses, film, frame_times

ATTENTION_FPS = 10.0
"""Of the film of what the policy saw."""
POLE_M, POLE_FROM_M, GOAL_RGBA = 0.8, 10.0, (0.10, 0.85, 0.95, 1.0)
"""Length of the arrow at a goal, from where the ground below is looked for, and its colour."""


def resolve_terrain(text: str) -> str:
    """The full name of a terrain by the beginning of it, or :data:`FLAT`.

    Raises:
        UnknownNameError: If there is none, or several.
    """
    try:
        return FLAT if text == FLAT else terrain_name(text)
    except UnknownNameError:
        raise UnknownNameError("terrain", text, (*HELD_OUT, *training_kinds(), FLAT)) from None


def require_goals(contract: PolicyContract) -> None:
    """Refuse a policy that does not walk to goals by a map.

    Raises:
        ContractError: With what it does instead.
    """
    if contract.command.kind != BODY_POSE or contract.map_window is None:
        sight = "a map" if contract.map_window is not None else "no map"
        raise ContractError(
            f"The policy follows '{contract.command.kind}' and looks at {sight}; terrain is crossed by policies that "
            f"follow '{BODY_POSE}' and look at one."
        )


class GoalDemo:
    """One demo.

    Args:
        config: What to show.
        display: Where news goes.
    """

    def __init__(self, config: GoalDemoConfig, display: Display) -> None:
        self._config, self._display = config, display
        self._stage_s: dict[str, float] = {}
        self._stages = 2 + len(config.terrains)

    def run(self) -> GoalOutcome:
        """Do it all and write the report.

        Raises:
            GantryError: If something is refused; a terrain that was not crossed is not.
        """

        config = self._config
        trouble = walks.ros_trouble()
        if trouble:
            raise GantryError(f"{trouble}; `gantry play --attention` shows such a policy without ROS 2.")
        stages: list[Stage] = []
        with self._stage("check", "Verify the bundle"):
            bundle, runner = check_static(lambda: load_bundle(config.bundle), stages.append)
            require_goals(bundle.contract)
            for stage in stages:
                self._display.say(f"  {'pass' if stage.passed else 'FAIL'}  {stage.name}: {stage.text}")
        try:
            config.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GantryError(f"Cannot make the folder '{config.output}': {error.strerror}.") from error
        crossings = tuple(self._cross(bundle, runner.spec, terrain) for terrain in config.terrains)
        outcome = GoalOutcome(config, bundle, tuple(stages), crossings, self._stage_s)
        with self._stage("report", "Write the report"):
            write_json(config.output / RESULT, goal_result(outcome))
            build_goal_page(outcome).write(config.output / REPORT)
        return outcome

    def _cross(self, bundle: Bundle, spec: RobotSpec, terrain: str) -> Crossing:
        config, say = self._config, self._display.say
        kind = "" if terrain == FLAT else terrain
        folder = config.output / terrain
        folder.mkdir(exist_ok=True)
        with self._stage(terrain, f"Cross {terrain} over ROS 2: camera, mapping, policy and operator as processes"):
            scene = robot_with_motors(spec, terrain=kind, terrain_difficulty=config.difficulty)
            places = SceneIndex(scene, spec).goals_in_world_m
            goal = goal_ahead(places) if config.goal is None else Goal(*config.goal)
            asked = (config.bundle, kind, config.difficulty, goal, config.seconds, folder, say)
            walk = goal_walk_over_ros(*asked)
            found, note = _measured(walk, goal, scene)
            crossed = walk.completed and found is not None and found.crossed
            if not crossed and walks.kept_from_time(walk):
                reason = Crossing(terrain, goal, walk, found=found).reason
                say(f"  {reason.rstrip('.')}: too busy a machine; the same walk in this process, without the clock")
                walk = walks.without_clock(goal_walk_in_process(*asked), walk, reason)
                found, note = _measured(walk, goal, scene)
            crossing = Crossing(terrain, goal, walk, note=note)
            if found is not None:
                try:
                    crossing = self._look(crossing, found, bundle, scene, folder)
                except GantryError as error:
                    crossing = Crossing(terrain, goal, walk, note=str(error))
            say(f"  {in_words(crossing)}")
        return crossing

    def _look(
        self, crossing: Crossing, found: MeasuredGoalWalk, bundle: Bundle, scene: mujoco.MjModel, folder: Path
    ) -> Crossing:
        """Draw a recording."""
        title = f"{found.spec.name.capitalize()} on {crossing.terrain}"
        attention = attention_of(found, bundle, scene, title, ATTENTION_FPS, crossing.walk.trouble)
        films, note = {}, ""
        try:
            if self._config.video:
                films = {name: data for name, data in self._films(found, attention, scene)}
        except (GantryError, ImportError) as error:
            note = str(error)
        for name, data in films.items():
            write_whole(folder / name, data)
        return Crossing(
            crossing.terrain,
            crossing.goal,
            crossing.walk,
            found=found,
            mapping=_read_statistics(folder / MAPPING),
            robot=_read_statistics(folder / ROBOT),
            loop=_read_statistics(folder / walks.STATISTICS),
            rerun=rerun_difference(found, bundle),
            attention=attention,
            films=films,
            note=note,
        )

    def _films(
        self, found: MeasuredGoalWalk, attention: AttentionRollout, scene: mujoco.MjModel
    ) -> Iterator[tuple[str, bytes]]:
        share = self._display.share("film")
        poses = poses_of(found)
        pole = _pole(scene, found.goal)
        pictures = film(found.spec, poses, FPS, scene=scene, annotate=lambda row: ((pole,), _caption(found, row)))
        half = _Told(share, 0.0, 0.5 / len(frame_times(poses, FPS)))
        yield VIDEO, encode_mp4(map(half, pictures), FPS)
        half = _Told(share, 0.5, 0.5 / len(attention.moments))
        yield ATTENTION_VIDEO, encode_mp4(map(half, film_frames(attention)), attention.fps)

    @contextmanager
    def _stage(self, name: str, title: str) -> Iterator[None]:
        begin = time.monotonic()
        self._display.say(f"[{len(self._stage_s) + 1}/{self._stages}] {title}")
        yield
        self._stage_s[name] = time.monotonic() - begin


def _measured(walk: walks.Walk, goal: Goal, scene: mujoco.MjModel) -> tuple[MeasuredGoalWalk | None, str]:
    """Measurements of a recorded walk, or the reason for which there is nothing to read."""
    try:
        return measure_goal_walk(walk.recording, goal, scene), ""
    except GantryError as error:
        return None, str(error)


def poses_of(found: MeasuredGoalWalk) -> Poses:
    """The walk for :func:`gantry_sim.viewing.replay.film`, without velocities."""
    nothing = found.pos_base_in_world_m * 0.0
    places = (found.time_s, found.pos_base_in_world_m, found.quat_base_to_world_wxyz, found.joint_pos_rad)
    return Poses(*places, command=nothing, velocity=nothing)


class _Told:
    """Passes pictures on and tells how far it is."""

    def __init__(self, share: Any, begin: float, step: float) -> None:
        self._share, self._done, self._step = share, begin, step

    def __call__(self, picture: Any) -> Any:
        self._done = min(1.0, self._done + self._step)
        self._share(self._done)
        return picture


def _caption(found: MeasuredGoalWalk, row: int) -> str:
    x, y = found.command[row, :2]
    return f"{found.time_s[row]:4.1f} s\n{(x**2 + y**2) ** 0.5:.2f} m to the goal"


def _pole(scene: mujoco.MjModel, goal: Goal) -> Arrow:
    """Points at the goal from above."""
    data = mujoco.MjData(scene)
    mujoco.mj_kinematics(scene, data)
    place = np.array([goal.x_in_world_m, goal.y_in_world_m])
    found = ground_height_m(scene, data, place, POLE_FROM_M)
    ground = found if np.isfinite(found) else 0.0
    return Arrow(np.array([*place, ground + POLE_M]), np.array([*place, ground]), GOAL_RGBA)


def _read_statistics(path: Path) -> dict[str, Any] | None:
    try:
        return read_run_file(path)
    except (OSError, ValueError):
        return None


def check_config(config: GoalDemoConfig) -> None:
    """Refuse what can be refused before anything starts.

    Raises:
        GantryError: If the bundle is not what it should be, does not walk to goals, or a number makes no sense.
    """
    TerrainCfg("t1", config.difficulty)
    contract = load_bundle(config.bundle).contract
    require_goals(contract)
    robot_spec(contract.robot)
