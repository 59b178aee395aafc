"""Steps of commissioning in which the robot moves, at part of its gains: joints one by one, the stop, the policy."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from gantry_deploy.commission.gentle import GentleRobot
from gantry_deploy.commission.moves import GentleMotion, JointMove, move_joint
from gantry_deploy.commission.site import Site, StepResult
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import SafetyError
from gantry_deploy.perception.maps import make_map_source
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.state import JointCommand

MAX_STOP_S = 0.1
"""Longest time from the operator's key to a damping command."""


def check_joints(site: Site) -> StepResult:
    """Move joints one by one at low gain; readings and the operator say what moved."""
    operator, cfg = site.operator, site.cfg
    question = "Move the joints one by one? The robot must hang or lie free, and a hand be at the emergency stop."
    if operator.ask(question) == "n":
        return StepResult("joints", "skipped", "not wanted")
    names = cfg.joints or site.robot.spec.joint_names
    gentle = GentleRobot(site.robot, cfg.gain_share)
    motion = GentleMotion(gentle, cfg.rate_hz, operator.pressed, site.safety)
    rows, failed, moves = [], 0, []
    for name in names:
        operator.tell(f"{name}: moving; Enter stops.")
        try:
            move = move_joint(motion, gentle, site.robot.spec.joint_index(name), cfg.amplitude_rad, cfg.period_s)
        except SafetyError as error:
            rows.append((name, "stopped", str(error)))
            return StepResult("joints", "failed", f"stopped at {name}: {error}", rows, {"moves": moves})
        problems = move.problems
        if operator.ask(f"Did {name}, and no other joint, move {_direction(move)}?") == "n":
            problems.append("the operator saw something else")
        failed += bool(problems)
        rows.append((name, "; ".join(problems) or "as commanded", f"{_own(move):+.3f} of {move.asked_rad:+.3f}"))
        moves.append({"joint": name, "asked": move.asked_rad, "moved": move.moved_rad.tolist(), "problems": problems})
        operator.tell(f"  {rows[-1][1]} ({rows[-1][2]} rad)")
    text = (
        f"{len(rows) - failed} of {len(rows)} joints moved as commanded, at {100 * cfg.gain_share:.0f} % of the gains"
    )
    return StepResult("joints", "failed" if failed else "passed", text, rows, {"moves": moves})


def _direction(move: JointMove) -> str:
    return f"in its {'positive' if move.asked_rad > 0 else 'negative'} direction and back"


def _own(move: JointMove) -> float:
    return float(move.moved_rad[move.index])


def check_stop(site: Site) -> StepResult:
    """Hold the pose at low gain until the operator stops it; measure how soon damping is sent."""
    if site.operator.ask("Try the stop? The robot holds its pose at low gain until you press Enter.") == "n":
        return StepResult("stop", "skipped", "not wanted")
    gentle = GentleRobot(site.robot, site.cfg.gain_share)
    pressed: list[float] = []

    def stop() -> bool:
        if site.operator.pressed():
            pressed.append(time.perf_counter())
        return bool(pressed)

    motion = GentleMotion(gentle, site.cfg.rate_hz, stop, site.safety)
    sent: list[float] = []
    write = gentle.write

    def noted(command: JointCommand) -> JointCommand | None:
        result = write(command)
        if pressed and not (command.stiffness_nm_rad > 0).any() and not sent:
            sent.append(time.perf_counter())
        return result

    gentle.write = noted  # type: ignore[method-assign]
    site.operator.tell("Holding; press Enter to stop.")
    try:
        motion.run(lambda _, start: start, 60.0)
    except SafetyError as error:
        if not pressed:
            return StepResult("stop", "failed", str(error))
    if not sent:
        return StepResult("stop", "failed", "Enter was not pressed within a minute")
    # A key may come right after a tick has looked for it.
    took_s = sent[0] - pressed[0] + 1.0 / site.cfg.rate_hz
    text = f"damping was sent {1e3 * took_s:.1f} ms after the key at most (allowed {1e3 * MAX_STOP_S:.0f})"
    return StepResult("stop", "passed" if took_s < MAX_STOP_S else "failed", text, data={"stop_s": took_s})


def check_policy(site: Site) -> StepResult:
    """Let the policy run on the gantry with soft joints, at rest."""
    bundle, cfg = site.bundle, site.cfg
    if bundle is None:
        return StepResult("policy", "skipped", "no bundle was given")
    question = "Run the policy? The robot must hang free of the ground; it stands up first, with soft joints."
    if site.operator.ask(question) == "n":
        return StepResult("policy", "skipped", "not wanted")
    robot = GentleRobot(site.robot, cfg.gain_share)
    contract = bundle.contract
    runner = PolicyRunner(bundle, robot.spec)
    config = replace(site.safety, stand_duration_s=4.0, stand_tolerance_rad=np.pi)
    around = embodiment_of(contract).surroundings_source(contract, robot)
    eyes = make_map_source(contract, robot, runner.mapper_model, None)
    loop = Controller(robot, runner, SafetyMachine(robot.spec, config), map_source=eyes, surroundings=around)
    session = WalkSession(loop, np.zeros(len(contract.command.names)), cfg.policy_s, site.operator.tell)
    session.run()
    timing = loop.statistics()
    missed = timing["missed_deadlines"]
    text = f"{cfg.policy_s:g} s at {100 * cfg.gain_share:.0f} % of the gains, {missed} missed deadlines"
    fault = timing["fault"]
    verdict = "passed" if session.completed else "failed"
    return StepResult("policy", verdict, text if fault is None else f"{text}: {fault['text']}", data={"missed": missed})
