"""A correction session over ROS 2 from a poor clone to a better policy: virtual joystick, page in a browser, learner.

python scripts/measure/ros_session.py --output FOLDER [--minutes M] [--seed S]

Simulated arm, session and learner are processes of their own; the first two talk over DDS. A scripted person moves a
virtual joystick (``sensor_msgs/Joy`` with a dead-man switch) and sees the arm's topics alone; success is clicked on the
session's page by a headless browser. The folder holds screenshots, the session as a page, and the report of
``gantry demo --corrections``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from gantry_deploy.bundle.bundle import load_bundle  # noqa: E402
from gantry_deploy.contract.policy_contract import PolicyContract  # noqa: E402
from gantry_deploy.observations.signals import Signals  # noqa: E402
from gantry_deploy.recording.ros_messages import BASE_FRAME  # noqa: E402
from gantry_deploy.session.states import SessionState  # noqa: E402
from gantry_fixtures.browsers import headless_chromium  # noqa: E402
from gantry_fixtures.learners import GANTRY, Learner  # noqa: E402
from gantry_hardware.files.json_file import read_json  # noqa: E402
from gantry_ros.testing import NodeProcess, Operator, isolated_environment, wait_until  # noqa: E402
from gantry_sim.demo.corrections import REPORT, CorrectionsDemoCfg, run_corrections_demo  # noqa: E402
from gantry_sim.tasks.manipulation.persons.batch import PersonCfg, ScriptedHelp  # noqa: E402
from gantry_sim.tasks.manipulation.persons.device import SeenState  # noqa: E402

NODE, DEAD_MAN, DEAD_ZONE = "session_node", 5, 0.1
"""Name of the session's node; number of the button RB, and dead zone of the sticks, in the map 'xbox'."""
EPISODE_S = 6.0
"""Length of an attempt, s."""
CONFIRMED = 3
"""Steps in a row for which an attempt must look successful before success is clicked."""
LIMITS = {
    "safety__state_timeout_s": 1.0,
    "safety__max_missed_deadlines": 1000,
    "connect_timeout_s": 60.0,
}
"""Safety parameters that a machine busy with learning does not exceed."""


class VirtualJoystick:
    """Driver of a joystick, moved by a scripted person that sees joints and object on the robot's topics.

    Args:
        operator: Hears the session's diagnostics.
        contract: Of the policy that is corrected.
        task: Its task.
        seed: Of the person.
    """

    def __init__(self, operator: Operator, contract: PolicyContract, task: str, seed: int) -> None:
        from geometry_msgs.msg import PoseStamped
        from sensor_msgs.msg import JointState, Joy

        from gantry_ros.runtime import topics
        from gantry_ros.runtime.host import NodeHost

        self._operator, self._message = operator, Joy
        self._state = SeenState(task, contract)
        self._help = ScriptedHelp(self._state, PersonCfg(), contract.dt_s, seed)  # type: ignore[arg-type]
        self._joints = self._pose = None
        self._attempt, self._successes = "", 0
        self.succeeded = False
        """Whether the person sees success."""
        self.host = NodeHost("joystick")
        node = self.host.node
        self._publisher = node.create_publisher(Joy, topics.JOY, topics.OPERATOR_QOS)
        node.create_subscription(JointState, topics.JOINT_STATES, self._on_joints, topics.READER_QOS)
        node.create_subscription(PoseStamped, topics.OBJECT_POSE, self._on_object, topics.READER_QOS)
        self.host.create_timer(contract.dt_s, self._move)
        self.host.start()

    def _on_joints(self, message: Any) -> None:
        self._joints = np.array([message.position], dtype=np.float32)

    def _on_object(self, message: Any) -> None:
        from gantry_ros.convert import arm

        self._pose = arm.pose(message, BASE_FRAME)[None].astype(np.float32)

    def _signals(self) -> Signals:
        """State of the arm as the topics have it, one row."""
        row = np.zeros((1, 3), dtype=np.float32)
        return Signals(
            joint_pos_rad=self._joints,
            joint_vel_rad_s=np.zeros_like(self._joints),
            quat_base_to_world_wxyz=np.array([[1.0, 0.0, 0.0, 0.0]], dtype=np.float32),
            ang_vel_base_in_base_rad_s=row,
            command=row[:, :0],
            last_action=row[:, :0],
            time_s=row[:, 0],
            object_pose_in_base=self._pose,
        )

    def _move(self) -> None:
        """Look, decide, and move the sticks."""
        session = self._operator.values(NODE)
        held, action = False, np.zeros(4, dtype=np.float32)
        if self._joints is not None and self._pose is not None and session.get("state") in ("AUTONOMOUS", "CORRECTING"):
            if session["attempt"] != self._attempt:
                self._attempt = session["attempt"]
                self._help.begin(torch.ones(1, dtype=torch.bool))
            self._state.see(self._signals())
            acts = session["state"] == SessionState.CORRECTING.value
            held = bool(self._help.watch(torch.tensor([acts])))
            action = self._help.act()[0].numpy() if held else action
            looks_good = bool(self._state.rule.success(self._state))
            self._successes = self._successes + 1 if looks_good else 0
        else:
            self._successes = 0
        self.succeeded = self._successes >= CONFIRMED
        message = self._message(axes=sticks(action), buttons=[int(held and number == DEAD_MAN) for number in range(11)])
        message.header.stamp = self.host.node.get_clock().now().to_msg()
        self._publisher.publish(message)


def sticks(action: np.ndarray) -> list[float]:
    """Axes of a Joy message for an action (4,): x, y, z and gripper, each in [-1, 1]."""

    def deflected(value: float) -> float:
        return float(np.sign(value) * (DEAD_ZONE + (1.0 - DEAD_ZONE) * min(1.0, abs(value)))) if value else 0.0

    x, y, z, grip = (float(value) for value in action)
    left, right = (1.0 - 2.0 * deflected(max(0.0, value)) for value in (-grip, grip))
    return [deflected(y), deflected(x), left, 0.0, deflected(z), right, 0.0, 0.0]


def ros_session(cfg: CorrectionsDemoCfg, words: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    """See :data:`gantry_sim.demo.corrections.Session`."""
    folder, told = cfg.output / "session", cfg.output / "session" / "session.json"
    folder.mkdir()
    environment = isolated_environment()
    os.environ.update(environment)  # Operator and joystick are nodes of this process.
    with contextlib.ExitStack() as stack:
        learner = Learner(folder / "run", *words, "--run-dir", str(folder / "run"))
        stack.callback(learner.end)
        stack.enter_context(simulated_arm(cfg, folder, environment))
        session = stack.enter_context(session_node(cfg, folder, environment, learner.address))
        session.wait_for_output("page: http")
        operator, browser = Operator(), headless_chromium()
        stack.callback(operator.close)
        stack.callback(browser.quit)
        address = re.search(r"page: (http\S+)", session.output)
        assert address is not None
        browser.get(address[1])
        operator.wait_for(NODE, actor="policy")
        contract = load_bundle(folder / "run" / "session-bundle").contract
        joystick = VirtualJoystick(operator, contract, cfg.task, cfg.seed)
        try:
            correct(cfg, operator, joystick, browser, say)
        finally:
            joystick.host.close()
        if session.stop() != 0:
            raise SystemExit(f"The session's node failed:\n{session.output}")
    replay = ("session", "replay", str(cfg.output / "dataset"), "--html", str(cfg.output / "session.html"))
    subprocess.run((*GANTRY, *replay), check=True)
    return read_json(told)


def simulated_arm(cfg: CorrectionsDemoCfg, folder: Path, environment: dict[str, str]) -> NodeProcess:
    """The arm at its workbench behind ROS 2 topics."""
    options = json.dumps({"task": cfg.task, "seed": 1000 + cfg.seed})
    about = {"robot": "yam", "backend": "workbench", "options": options, "rate_hz": 100.0}
    return NodeProcess("sim_robot_node", environment, folder / "sim_robot_node.log", **about)


def session_node(cfg: CorrectionsDemoCfg, folder: Path, environment: dict[str, str], learner: str) -> NodeProcess:
    """The session, with joystick and page as devices."""
    about: dict[str, Any] = {
        "learner": learner,
        "spool": str(folder / "spool"),
        "device": "ros, page",
        "device_options": "ros.timeout_s=1.0",
        "page": 0,
        "dataset": str(cfg.output / "dataset"),
        "results": str(folder / "session.json"),
        "episode_s": EPISODE_S,
        "auto_start": True,
        "scene_reset": "reset",
        "diagnostics_rate_hz": 20.0,
    }
    return NodeProcess(NODE, environment, folder / f"{NODE}.log", **about, **LIMITS)


def correct(
    cfg: CorrectionsDemoCfg, operator: Operator, joystick: VirtualJoystick, browser: Any, say: Callable[[str], None]
) -> None:
    """Let the person work for a while, and click what is clicked."""
    until_s, tell_s, shot = time.monotonic() + 60.0 * cfg.minutes, 0.0, False
    while time.monotonic() < until_s:
        seen = operator.values(NODE)
        if joystick.succeeded:
            browser.find_element("css selector", "[data-event=success]").click()
            attempt = seen["attempt"]
            wait_until(lambda old=attempt: operator.values(NODE)["attempt"] != old, "the next attempt")
        if not shot and seen.get("actor") == "person" and int(seen["attempts"]) > 3:
            shot = browser.save_screenshot(str(cfg.output / "page-person-acts.png"))
        if time.monotonic() > tell_s:
            tell_s = time.monotonic() + 20.0
            names = ("attempts", "successes", "success rate", "person s", "learner updates", "weights version")
            say("  " + ", ".join(f"{name} {seen.get(name)}" for name in names))
        time.sleep(0.05)
    browser.save_screenshot(str(cfg.output / "page-end.png"))


def main() -> None:
    """Run it and print what was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="new folder")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    cfg = CorrectionsDemoCfg(args.output, minutes=args.minutes, episodes=args.episodes, seed=args.seed)
    result = run_corrections_demo(cfg, lambda line: print(line, flush=True), ros_session)
    for name in ("before", "after"):
        found = result[name]
        print(f"{name}: {found['mean']:.1%} [{found['low']:.1%}, {found['high']:.1%}] of {cfg.episodes}")
    print(f"{result['person_s']:.0f} s of the person's time, {result['steps']} steps, {result['attempts']} attempts")
    print(f"Report: {cfg.output / REPORT}")


if __name__ == "__main__":
    main()
