"""A walk to a goal by a map: over ROS 2 as processes of their own, or in this process without the clock."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.session import WalkSession
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import SafetyError
from gantry_deploy.perception.maps import make_map_source, map_values
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.recorder import Recorder
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.mujoco_robot import MujocoRobot
from gantry_sim.demo import walk as walks
from gantry_sim.training.run_config import write_json

MAPPING, ROBOT = "mapping.json", "robot.json"
"""Files of a walk over ROS 2 in its folder, beside those of :mod:`gantry_sim.demo.walk`."""
THROUGH = "Done."
"""Message of the operator when the time of a goal is over."""
GOAL_PERIOD_S = 1.0
"""A goal is sent so often, and the first time when the policy is known to run."""


def goal_walk_over_ros(
    bundle: Path, terrain: str, difficulty: float, goal: Goal, seconds: float, folder: Path, say: walks.Say
) -> walks.Walk:
    """One walk to one goal by the launch description ``sim_map_walk``.

    Args:
        bundle: The policy.
        terrain: Name; empty for a flat floor.
        difficulty: Of the terrain, 0 to 1.
        goal: Where to.
        seconds: Time under the policy.
        folder: Gets recording, log and statistics.
        say: Takes lines for people.
    """
    walks.write_setup(folder / walks.SETUP, walks.PATIENCE)
    given = {
        "bundle": bundle.resolve(),
        "terrain": terrain,
        "terrain_difficulty": difficulty,
        "options": '{"visuals": false}',
        "record": (folder / walks.RECORDING).resolve(),
        "statistics": (folder / walks.STATISTICS).resolve(),
        "mapping_statistics": (folder / MAPPING).resolve(),
        "robot_statistics": (folder / ROBOT).resolve(),
        "config": (folder / walks.SETUP).resolve(),
        "drive": "true",
        "goal": f"{goal.x_in_world_m!r},{goal.y_in_world_m!r},{goal.yaw_in_world_rad!r}",
        "goal_timeout": seconds,
        "goal_hold": "true",
    }

    def arguments(attempt: int) -> dict[str, Any]:
        _clear(folder)
        return given

    limit_s = walks.START_TIMEOUT_S + seconds + GOAL_PERIOD_S
    return walks.launched("sim_map_walk", arguments, folder, say, limit_s, THROUGH)


def goal_walk_in_process(
    bundle: Path, terrain: str, difficulty: float, goal: Goal, seconds: float, folder: Path, say: walks.Say
) -> walks.Walk:
    """The same walk through the same loop and the same mapping on the same simulated robot, whose clock waits for both.

    Args: as of :func:`goal_walk_over_ros`.
    """
    _clear(folder)
    loaded = load_bundle(bundle)
    spec, contract = robot_spec(loaded.contract.robot), loaded.contract
    options = embodiment_of(contract).backend_options(contract, "mujoco") | {
        "terrain": terrain,
        "terrain_difficulty": difficulty,
    }
    refusal = ""
    with contextlib.ExitStack() as stack:
        runner = PolicyRunner(loaded, spec)
        robot = MujocoRobot(spec, visuals=False, **options)
        stack.callback(robot.close)
        eyes = make_map_source(contract, robot, runner.mapper_model)
        recorder = Recorder(folder / walks.RECORDING, contract, spec, lossless=True, map_source=eyes)
        stack.callback(recorder.close)
        robot.connect()
        controller = Controller(robot, runner, SafetyMachine(spec), recorder, map_source=eyes)
        controller.set_goal(goal)
        session = WalkSession(controller, None, seconds, lambda text: say(f"  {text}"))
        try:
            session.run()
        except SafetyError as error:
            refusal = str(error)
    write_json(folder / walks.STATISTICS, controller.statistics() | {"map": map_values(eyes)})
    fault = controller.safety.fault
    trouble = "" if session.completed else refusal or (fault.text if fault is not None else "the policy stopped")
    recording = folder / walks.RECORDING
    return walks.Walk(False, recording, session.completed, trouble, paced=False, refused=bool(refusal))


def _clear(folder: Path) -> None:
    """Remove what an earlier attempt left."""
    for name in (walks.RECORDING, walks.STATISTICS, MAPPING, ROBOT):
        (folder / name).unlink(missing_ok=True)
