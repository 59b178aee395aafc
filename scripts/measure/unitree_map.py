"""Walks the AME-2 student on the fake Go2: motors over the robot's own DDS topics, depth and odometry over ROS 2.

    python scripts/measure/unitree_map.py [--goal 3,0,0] [--seconds 60] [--terrain t1] [--json FILE]

The policy's node drives the robot (``gantry launch quadruped mapping_node:=true``). Depth camera and odometry, which
the robot's low level does not have, are added beside it: rendered from the fake's true pose, and published.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CameraInfo, Image

from gantry_deploy.control.goals import Goal
from gantry_hardware.robots import robot_spec
from gantry_ros.convert import map as convert_map
from gantry_ros.runtime import topics
from gantry_ros.runtime.host import NodeHost
from gantry_ros.simulated.depth_publisher import CAMERA_FRAME
from gantry_ros.testing import Operator, isolated_environment, wait_until
from gantry_sim.robots.actuated_scene import robot_with_motors
from gantry_sim.robots.depth_camera import DepthRays, head_camera
from gantry_sim.unitree.fake_process import FakeProcess

BUNDLE = "pretrained:ame2-go2-student"
ODOMETRY_S, DEPTH_S = 0.02, 1.0 / 15.0
"""Periods of odometry and depth images."""
REACHED_M = 0.5
"""Distance to the goal that counts."""


class Eyes:
    """Depth camera and odometry of the fake, published by a thread."""

    def __init__(self, fake: FakeProcess, terrain: str, difficulty: float) -> None:
        spec = robot_spec("go2")
        self._fake, self._camera = fake, head_camera(spec.name)
        ground = {"terrain": terrain, "terrain_difficulty": difficulty}
        self._model = robot_with_motors(spec, visuals=False, **ground)
        self._data = mujoco.MjData(self._model)
        self._rays = DepthRays(self._model, self._camera)
        self._host = NodeHost("eyes")
        node = self._host.node
        self._odom = node.create_publisher(Odometry, topics.ODOM, topics.WRITER_QOS)
        self._images = node.create_publisher(Image, topics.DEPTH, topics.WRITER_QOS)
        self._infos = node.create_publisher(CameraInfo, topics.CAMERA_INFO, topics.WRITER_QOS)
        self.images = 0
        self.place: dict[str, list[float]] = {}
        self._host.start()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def report(self) -> dict[str, Any]:
        """The fake's report; its pipe is shared with the thread."""
        with self._lock:
            return self._fake.report()

    def close(self) -> None:
        """End the thread and leave."""
        self._host.stop.set()
        self._thread.join()
        self._host.close()

    def _run(self) -> None:
        image_s = 0.0
        while not self._host.stop.wait(ODOMETRY_S):
            with self._lock:
                self.place = self._fake.say("pose")["pose"]
            stamp = self._host.node.get_clock().now().to_msg()
            self._tell_odometry(stamp)
            if time.monotonic() >= image_s:
                image_s = time.monotonic() + DEPTH_S
                pos, quat = (np.array(self.place[key]) for key in ("pos_base_in_world_m", "quat_base_to_world_wxyz"))
                self._data.qpos[:7] = (*pos, *quat)
                mujoco.mj_kinematics(self._model, self._data)
                depth = self._rays.render(self._data, pos, quat)
                self._infos.publish(convert_map.camera_info_message(self._camera, stamp, CAMERA_FRAME))
                self._images.publish(convert_map.depth_image_message(depth, stamp, CAMERA_FRAME))
                self.images += 1

    def _tell_odometry(self, stamp: Any) -> None:
        message = Odometry(child_frame_id="base_link")
        message.header.frame_id, message.header.stamp = "odom", stamp
        place, turn, speed = message.pose.pose.position, message.pose.pose.orientation, message.twist.twist.linear
        place.x, place.y, place.z = self.place["pos_base_in_world_m"]
        turn.w, turn.x, turn.y, turn.z = self.place["quat_base_to_world_wxyz"]
        speed.x, speed.y, speed.z = self.place["lin_vel_base_in_base_m_s"]
        self._odom.publish(message)


def launch(domain: int, folder: Path, patience_s: float) -> subprocess.Popen[str]:
    """``gantry launch quadruped`` on the fake."""
    site = folder / "site.yaml"
    told = {
        "backend": "unitree",
        "backend_options": {"interface": "lo", "domain": domain},
        "safety": {"state_timeout_s": patience_s, "max_missed_deadlines": 10},
    }
    site.write_text(json.dumps({"/**/policy_node": {"ros__parameters": told}}))
    command = [sys.executable, "-m", "gantry_deploy.cli.main", "launch", "quadruped", f"bundle:={BUNDLE}"]
    command += [f"site:={site}", f"statistics:={folder / 'statistics.json'}", "require_heartbeat:=false"]
    command += ["mapping_node:=true"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def walk(args: argparse.Namespace) -> dict[str, Any]:
    """One walk to the goal, or until the time is over."""
    fake = FakeProcess("go2", "--terrain", args.terrain, "--terrain-difficulty", str(args.difficulty))
    eyes, operator, folder = Eyes(fake, args.terrain, args.difficulty), Operator(), Path(tempfile.mkdtemp())
    child = launch(fake.domain, folder, args.state_timeout)
    goal = Goal(*(float(part) for part in args.goal.split(",")))
    found: dict[str, Any] = {"terrain": args.terrain, "difficulty": args.difficulty, "goal": args.goal}
    try:

        def running() -> bool:
            mode = operator.values("policy_node").get("mode", "")
            event = {"PASSIVE": "stand", "STAND": "start"}.get(mode)
            if event is not None:
                operator.ask(f"policy_node/{event}")
            return mode == "POLICY" or child.poll() is not None

        wait_until(running, "the policy")
        begin_s, least_m = time.monotonic(), math.inf
        while time.monotonic() < begin_s + args.seconds and child.poll() is None:
            operator.send_to(goal)
            x_m, y_m, _ = eyes.place["pos_base_in_world_m"]
            left_m = math.hypot(goal.x_in_world_m - x_m, goal.y_in_world_m - y_m)
            if left_m < REACHED_M and least_m >= REACHED_M:
                found["reached_after_s"] = round(time.monotonic() - begin_s, 1)
            least_m = min(least_m, left_m)
            if operator.values("policy_node").get("mode") != "POLICY":
                break
            time.sleep(0.1)
        values, report = operator.values("policy_node"), eyes.report()
        found |= {"walked_s": round(time.monotonic() - begin_s, 1), "least_distance_m": least_m}
        found |= {key: values.get(key) for key in ("mode", "fault", "map age s", "busy p99 ms", "missed_deadlines")}
        found |= {key: report[key] for key in ("travelled_m", "violations", "commands", "command_gap_ms", "fallen")}
        found |= {"images": eyes.images, "load": os.getloadavg()[0]}
    finally:
        child.send_signal(2)
        found["said"] = [line for line in child.communicate(timeout=60)[0].splitlines() if "ERROR" in line][:5]
        operator.close()
        eyes.close()
        fake.close()
    return found


def main() -> int:
    """Walk and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goal", default="3,0,0", help="x, y, yaw in the world, m and rad")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the walk")
    parser.add_argument("--terrain", default="t1", help="ground; empty for a flat one")
    parser.add_argument("--difficulty", type=float, default=0.25, help="0 to 1")
    parser.add_argument("--state-timeout", type=float, default=0.1, help="safety setting state_timeout_s, s")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args()
    os.environ.update(isolated_environment())
    found = walk(args)
    print(json.dumps(found, indent=1))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
