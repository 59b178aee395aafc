"""Duration for which a second commander of a walking robot is obeyed, and its cost in height, on the robot's clock.

Real nodes over real DDS: a robot in MuJoCo that walks under a policy, and a node that begins to send another pose. For
each trial: the time from the second's first command to the first damped step of the robot, and the height lost by then.

    .venv/bin/python scripts/measure/second_commander.py --trials 10
    .venv/bin/python scripts/measure/second_commander.py --trials 10 --obeying

With ``--obeying`` the robot obeys both, as many robots do, and the policy's node alone notices.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from sensor_msgs.msg import JointState

from gantry_hardware.backends.state import JointCommand
from gantry_hardware.robots import robot_spec
from gantry_ros.convert import robot as convert
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost
from gantry_ros.testing import NodeProcess, Operator, isolated_environment, wait_until

ROBOT = "go2"
CROUCH_RAD = {"hip": 0.0, "thigh": 1.3, "calf": -2.6}
COMMANDED = "commanded"
"""Message of a robot that obeys the policy."""
LOAD = {"safety__state_timeout_s": 0.25, "safety__max_missed_deadlines": 50}
"""A busy machine is no fault: what is measured is on the robot's clock."""


def main(arguments: list[str]) -> int:
    """Run the trials and print them.

    Returns:
        0; 1 if a second commander was not damped.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10, help="How many.")
    parser.add_argument("--rate-hz", type=float, default=200.0, help="Rate of the second's commands, Hz.")
    parser.add_argument("--backend", default="mujoco", help="Backend of the robot.")
    parser.add_argument("--obeying", action="store_true", help="The robot obeys both.")
    parser.add_argument(
        "--undiscovered", action="store_true", help="The second begins before the policy's node has discovered it."
    )
    parser.add_argument("--seed", type=int, default=None, help="Of the moments at which the second begins.")
    parser.add_argument("--json", action="store_true", help="Print the trials as JSON.")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    environment = isolated_environment()
    os.environ.update(environment)
    with tempfile.TemporaryDirectory() as folder:
        trials = measure(options, random.Random(seed), environment, Path(folder))
    print(json.dumps(trials, indent=1) if options.json else table(trials))
    return 0 if all(trial["damped_s"] is not None for trial in trials) else 1


def measure(options: Any, rng: random.Random, environment: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """All trials, with one robot and one policy."""
    report = folder / "robot.json"
    robot = NodeProcess(
        "sim_robot_node",
        environment,
        folder / "robot.log",
        robot=ROBOT,
        backend=options.backend,
        statistics=str(report),
        refuse_two_commanders=not options.obeying,
    )
    with robot:
        robot.wait_for_output("on backend", 300.0)
        policy = NodeProcess(
            "policy_node",
            environment,
            folder / "policy.log",
            bundle="pretrained:go2-walk",
            connect_timeout_s=60.0,
            **LOAD,
        )
        operator = Operator()
        with policy:
            policy.wait_for_output("answers", 120.0)
            for trial in range(options.trials):
                walk(operator, rng.uniform(1.0, 2.0))
                interfere(operator, options.rate_hz, options.undiscovered)
                print(f"{trial + 1} of {options.trials}: {operator.values('policy_node')['fault']}", file=sys.stderr)
            policy.stop()
        operator.close()
        robot.stop()
    encounters = json.loads(report.read_text())["second_commanders"]
    for item in encounters:
        if item["mode_before"] != COMMANDED:  # The policy itself was late: nothing was obeyed that could be measured.
            print(f"left out: {item}", file=sys.stderr)
    return [item for item in encounters if item["mode_before"] == COMMANDED]


def walk(operator: Operator, seconds: float) -> None:
    """Put the robot back to its start, let the policy take over, and walk for a while."""

    def running() -> bool:
        mode = operator.values("policy_node").get("mode", "")
        if mode == "POLICY":
            return True
        if mode == "DAMP" and operator.ask("policy_node/reset")[0]:
            operator.ask("reset")
        elif mode in ("PASSIVE", "STAND"):
            operator.ask("policy_node/stand" if mode == "PASSIVE" else "policy_node/start")
        time.sleep(0.1)
        return False

    wait_until(running, "mode POLICY", 120.0)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        operator.drive(0.4)
        time.sleep(0.05)


def interfere(operator: Operator, rate_hz: float, undiscovered: bool) -> None:
    """Send another pose until the policy has damped the robot, and a moment longer."""
    spec = robot_spec(ROBOT)
    pose = np.array([next(rad for part, rad in CROUCH_RAD.items() if part in name) for name in spec.joint_names])
    command = JointCommand.position(spec, pose)
    codec, over = convert.CommandCodec(spec), threading.Event()
    with NodeHost("second_commander") as host:
        host.start()
        publisher = host.node.create_publisher(JointState, topics.JOINT_COMMAND, topics.WRITER_QOS)
        expected = 1 if undiscovered else 3
        wait_until(lambda: publisher.get_subscription_count() >= expected, "the robot, the policy and this", 60.0)

        def send() -> None:
            while not over.wait(1.0 / rate_hz):
                publisher.publish(codec.message(command, host.node.get_clock().now().to_msg()))

        sender = threading.Thread(target=send)
        sender.start()
        try:
            wait_until(lambda: operator.values("policy_node").get("mode") == "DAMP", "mode DAMP", 60.0)
            time.sleep(0.5)
        finally:
            over.set()
            sender.join()
    time.sleep(1.5)  # After it the robot obeys the one that is left.


def table(trials: list[dict[str, Any]]) -> str:
    """The trials and their largest numbers."""
    lines = ["trial  reaction ms  height lost mm  damped by"]
    for index, trial in enumerate(trials):
        reaction, lost = trial["reaction_s"], trial["lost_m"]
        lines.append(
            f"{index + 1:5d}  {'never' if reaction is None else f'{1e3 * reaction:11.1f}'}  "
            f"{'unknown' if lost is None else f'{1e3 * lost:14.1f}'}  {trial['damped_by']}"
        )
    reactions = [trial["reaction_s"] for trial in trials if trial["reaction_s"] is not None]
    losses = [trial["lost_m"] for trial in trials if trial["lost_m"] is not None]
    if reactions and losses:
        lines.append(
            f"largest: {1e3 * max(reactions):.1f} ms, {1e3 * max(losses):.1f} mm; mean: "
            f"{1e3 * sum(reactions) / len(reactions):.1f} ms, {1e3 * sum(losses) / len(losses):.1f} mm"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
