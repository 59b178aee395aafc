"""The demo of a policy that walks to goals by a map: one walk over each terrain, by what the camera sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.policy_contract import BODY_POSE
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import ContractError
from gantry_deploy.evaluation.metrics import GOAL_HEADING_RAD, GOAL_POS_M
from gantry_deploy.report import Score, encode_mp4
from gantry_deploy.report.attention import AttentionRollout, film_frames
from gantry_hardware.backends.backend import Robot
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.demo import page
from gantry_sim.demo.measured import Measured, MeasuredGoalWalk, measure_goal_walk
from gantry_sim.demo.rollout import MAPPING, ROBOT, Plan, Rollout, Say, session
from gantry_sim.demo.scenario import VIDEO, DemoConfig, Display, Outcome, Policy, Recorded, Scenario, Section, Step
from gantry_sim.demo.scenarios.goal_attention import attention_of
from gantry_sim.demo.scenarios.goal_page import (
    ATTENTION_VIDEO,
    crossed,
    numbers_of,
    reason,
    terrains,
    walks,
)
from gantry_sim.demo.scenarios.legs import FPS
from gantry_sim.robots.actuated_scene import SceneIndex, ground_height_m, robot_with_motors
from gantry_sim.robots.terrain_names import terrain_name
from gantry_sim.terrains import TESTS, training_kinds
from gantry_sim.viewing.attention import goal_ahead
from gantry_sim.viewing.camera import Arrow
from gantry_sim.viewing.replay import Poses, film, frame_times

FLAT = "flat"
"""Name of the ground without terrain."""
HELD_OUT = tuple(TESTS)
"""Default terrains: those that no policy was trained on."""
ATTENTION_FPS = 10.0
"""Of the film of map and attention."""
GOAL_PERIOD_S = 1.0
"""A goal is sent so often, and the first time when the policy is known to run."""
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


@dataclass(frozen=True)
class Goals(Scenario):
    """Walks to goals over terrain."""

    terrains: tuple[str, ...] = HELD_OUT
    """Terrains, full names; :data:`FLAT` for a flat floor."""
    difficulty: float = 0.5
    """0 to 1; of a held-out test, which instance."""
    goal: tuple[float, float, float] | None = None
    """x, y in m and yaw in rad from the start; None for the terrain's goal that is most ahead."""
    seconds: float = 20.0
    """Time under the policy; success is judged at its end."""

    def require(self, bundle: Bundle) -> None:
        """Refuse a policy that does not walk to goals by a map."""
        contract = bundle.contract
        if contract.command.kind != BODY_POSE or contract.map_window is None:
            sight = "a map" if contract.map_window is not None else "no map"
            raise ContractError(
                f"The policy follows '{contract.command.kind}' and looks at {sight}; terrain is crossed by policies "
                f"that follow '{BODY_POSE}' and look at one."
            )

    def learn(self, config: DemoConfig, policy: Policy, display: Display) -> Sequence[Step]:
        """Nothing: a finished policy is shown, and scored by ``gantry eval --suite ame2``."""
        policy.evaluation_note = ""
        return []

    def rollouts(self, where: str) -> Mapping[str, str]:
        """A walk for each terrain."""
        nodes = ": camera, mapping, policy and operator as processes" if "ROS" in where else ""
        return {terrain: f"Cross {terrain} {where}{nodes}" for terrain in self.terrains}

    def plan(self, name: str, bundle: Bundle, folder: Path, say: Say) -> Plan:
        """The walk, by the launch description ``sim_map_walk``, or in this process without the clock."""
        goal, contract = self.goal_of(name, bundle), bundle.contract
        terrain = {"terrain": _kind(name), "terrain_difficulty": self.difficulty}
        options = embodiment_of(contract).backend_options(contract, "mujoco") | terrain

        def operate(controller: Controller, _: Robot, say: Say) -> bool:
            controller.set_goal(goal)
            return session(controller, None, self.seconds, say)

        return Plan(
            bundle=bundle.path,
            folder=folder / name,
            launch="sim_map_walk",
            arguments={
                **terrain,
                "options": '{"visuals": false}',
                "drive": "true",
                "goal": f"{goal.x_in_world_m!r},{goal.y_in_world_m!r},{goal.yaw_in_world_rad!r}",
                "goal_timeout": self.seconds,
                "goal_hold": "true",
            },
            outputs={"mapping_statistics": MAPPING, "robot_statistics": ROBOT},
            done="Done.",
            seconds=self.seconds + GOAL_PERIOD_S,
            make_robot=lambda spec, paced: MujocoRobot(spec, visuals=False, **options),
            operate=operate,
            paced=False,
        )

    def goal_of(self, terrain: str, bundle: Bundle) -> Goal:
        """Goal on a terrain, in the world."""
        spec = robot_spec(bundle.contract.robot)
        places = SceneIndex(self._scene(terrain, bundle), spec).goals_in_world_m
        return goal_ahead(places) if self.goal is None else Goal(*self.goal)

    def _scene(self, terrain: str, bundle: Bundle) -> mujoco.MjModel:
        return _scene(bundle.contract.robot, _kind(terrain), self.difficulty)

    def measure(self, name: str, plan: Plan, rollout: Rollout, bundle: Bundle) -> Sequence[Measured]:
        """The walk."""
        return [measure_goal_walk(rollout.recording, self.goal_of(name, bundle), self._scene(name, bundle))]

    def detail(self, recorded: Recorded, bundle: Bundle) -> AttentionRollout:
        """Map input and attention of the policy."""
        found, scene = recorded.walk, self._scene(recorded.name, bundle)
        title = f"{found.spec.name.capitalize()} on {recorded.name}"
        return attention_of(found, bundle, scene, title, ATTENTION_FPS, recorded.rollout.trouble)

    def films(self, recorded: Recorded, bundle: Bundle, share: Callable[[float], None]) -> Iterator[tuple[str, bytes]]:
        """The walk in its terrain, and its map and attention from above."""
        found, attention, scene = recorded.walk, recorded.detail, self._scene(recorded.name, bundle)
        still = found.pos_base_in_world_m * 0.0
        pose = (found.time_s, found.pos_base_in_world_m, found.quat_base_to_world_wxyz, found.joint_pos_rad)
        poses = Poses(*pose, command=still, velocity=still)
        pole = _pole(scene, found.goal)
        frames = film(found.spec, poses, FPS, scene=scene, annotate=lambda row: ((pole,), _caption(found, row)))
        total = len(frame_times(poses, FPS)) + len(attention.moments)
        count = iter(range(1, total + 1))

        def shared(pictures: Iterable[Any]) -> Iterator[Any]:
            for picture in pictures:
                yield picture
                share(next(count, total) / total)

        yield VIDEO, encode_mp4(shared(frames), FPS)
        yield ATTENTION_VIDEO, encode_mp4(shared(film_frames(attention)), attention.fps)

    def judge(self, recorded: Recorded, bundle: Bundle) -> Sequence[Score]:
        """Distance from the goal and its heading at the end, falls and faults, and whether it walked to the end."""
        found, name = recorded.walk, recorded.name
        nan, damped = math.nan, float(found is None or found.fell or bool(found.fault))
        position = nan if found is None else found.distance_m
        heading = nan if found is None else found.heading_error_rad
        return [
            Score(f"{name}: from the goal", position, GOAL_POS_M, "m", note="at the end"),
            Score(f"{name}: off its heading", heading, GOAL_HEADING_RAD, "rad"),
            Score(f"{name}: falls and faults", damped, 0.0, note=reason(recorded) if damped else ""),
            Score(f"{name}: walked to the end", float(recorded.rollout.completed), 1.0, above=True),
        ]

    def headline(self, outcome: Outcome) -> tuple[str, Mapping[str, str], str]:
        """Title, tiles and summary."""
        bundle, over_ros = outcome.bundle, any(item.rollout.over_ros for item in outcome.recorded)
        window = bundle.contract.map_window
        assert window is not None
        network = "the bundle's network" if bundle.mapper_bytes else "a Kalman filter per cell"
        if window.mapping is None:
            network += ", in the runtime's own setup, as the contract names none"
        nodes = (
            "four ROS 2 nodes ran, each a process of its own: a simulated robot with a depth camera, the mapping node "
            f"({network}), the policy, and an operator that sent one goal"
            if over_ros
            else f"a simulated robot with a depth camera, the mapping ({network}) and the policy ran in one process"
        )
        text = (
            f"On each terrain {nodes}. The policy looks at {window.rows} x {window.cols} cells of "
            f"{100 * window.resolution_m:g} cm ({' and '.join(window.channels)}) and was given {self.seconds:g} s. "
            "Everything below comes from the recordings of these walks: the films, the maps, what the policy was given "
            "of them, and where it looked, for which the bundle's network was run once more on the recorded "
            "observations. Nothing was simulated a second time."
        )
        robot = bundle.contract.robot.capitalize()
        tiles = {"crossed": f"{sum(map(crossed, outcome.recorded))} of {len(outcome.recorded)}"}
        return f"A {robot} walks over terrain by what its camera sees, {outcome.where}", tiles, text

    def sections(self, outcome: Outcome) -> Sequence[Section]:
        """All terrains, scores, each walk, the bundle, the origin."""
        return [terrains, page.scores, walks, page.gate, page.origin]

    def rollout_result(self, recorded: Recorded) -> dict[str, Any]:
        """One walk in numbers."""
        return numbers_of(recorded) | {"difficulty": self.difficulty}


def _kind(terrain: str) -> str:
    return "" if terrain == FLAT else terrain


@lru_cache(maxsize=1)
def _scene(robot: str, terrain: str, difficulty: float) -> mujoco.MjModel:
    return robot_with_motors(robot_spec(robot), terrain=terrain, terrain_difficulty=difficulty)


def _caption(found: MeasuredGoalWalk, row: int) -> str:
    return f"{found.time_s[row]:4.1f} s\n{math.hypot(*found.command[row, :2]):.2f} m to the goal"


def _pole(scene: mujoco.MjModel, goal: Goal) -> Arrow:
    """Points at the goal from above."""
    data = mujoco.MjData(scene)
    mujoco.mj_kinematics(scene, data)
    place = np.array([goal.x_in_world_m, goal.y_in_world_m])
    found = ground_height_m(scene, data, place, POLE_FROM_M)
    ground = found if np.isfinite(found) else 0.0
    return Arrow(np.array([*place, ground + POLE_M]), np.array([*place, ground]), GOAL_RGBA)
