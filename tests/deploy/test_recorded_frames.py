"""What viewers need: the robot's description, where its links are, and that all frames hang together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.frames import RATE_HZ
from gantry_deploy.recording.recorder import Recorder
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.model.description import robot_description
from gantry_hardware.robots import robot_spec

GO2 = robot_spec("go2")
LOOKS = ("/tf", "/tf_static", "/robot_description")


def looks_of(path):
    """Messages of the topics for viewers, and the durability that each offers."""
    found, durable = {topic: [] for topic in LOOKS}, {}
    with path.open("rb") as stream:
        for _, channel, message, decoded in make_reader(
            stream, decoder_factories=[DecoderFactory()]
        ).iter_decoded_messages(topics=LOOKS):
            found[channel.topic].append((message.log_time, decoded))
            (quality,) = yaml.safe_load(channel.metadata["offered_qos_profiles"])
            durable[channel.topic] = quality["durability"]
    return found, durable


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Reports of a go2 in the mock, and what its recording shows."""
    folder = tmp_path_factory.mktemp("walk")
    contract = contract_for(GO2)
    runner = PolicyRunner(tiny_bundle(folder / "bundle", contract), GO2)
    robot, reports = MockRobot(GO2), []
    robot.connect()
    with Recorder(folder / "run.mcap", contract, GO2, lossless=True) as recorder:
        loop = Controller(robot, runner, SafetyMachine(GO2), recorder)
        loop.request("stand")
        loop.run(2.1, on_tick=reports.append)
        loop.request("start")
        loop.run(1.0, lambda t: (0.5, 0.0, 0.1), on_tick=reports.append)
    return reports, *looks_of(folder / "run.mcap")


def test_the_description_and_what_does_not_move_are_said_once_for_all_who_come_later(walk):
    _, found, durable = walk
    ((_, description),) = found["/robot_description"]
    assert description.data == robot_description(GO2).urdf
    ((_, static),) = found["/tf_static"]
    assert {t.child_frame_id for t in static.transforms} == {"FR_foot", "FL_foot", "RR_foot", "RL_foot", "imu_link"}
    # rmw: 1 is transient local, 2 volatile.
    assert durable == {"/tf": 2, "/tf_static": 1, "/robot_description": 1}


def test_every_link_is_told_in_a_frame_that_is_told(walk):
    _, found, _ = walk
    (_, first), *_ = found["/tf"]
    parents = {t.child_frame_id: t.header.frame_id for t in first.transforms}
    parents |= {t.child_frame_id: t.header.frame_id for t in found["/tf_static"][0][1].transforms}
    assert len(parents) == 1 + 12 + 5
    for link in parents:
        while link in parents:
            link = parents[link]
        assert link == "odom"
    assert parents["base_link"] == "odom"


def test_frames_are_those_of_the_states_at_a_modest_rate(walk):
    reports, found, _ = walk
    at = {round(report.time_s * 1e9): report.state for report in reports}
    times = [time for time, _ in found["/tf"]]
    offset_ns = times[0] - min(at)
    steps_s = np.diff(times) * 1e-9
    assert steps_s.min() >= 1.0 / RATE_HZ - 1e-4
    assert len(times) == pytest.approx(RATE_HZ * (reports[-1].time_s - reports[0].time_s), abs=2)
    description = robot_description(GO2)
    for time, message in found["/tf"][:: len(times) // 10]:
        state = min(at.items(), key=lambda item: abs(item[0] + offset_ns - time))[1]
        base, *links = message.transforms
        quat = state.quat_base_to_world_wxyz
        assert base.header.stamp.sec * 10**9 + base.header.stamp.nanosec == time
        place = base.transform.translation
        assert [place.x, place.y, place.z] == state.pos_base_in_world_m.tolist()
        turn = base.transform.rotation
        assert [turn.w, turn.x, turn.y, turn.z] == quat.tolist()
        expected = description.moving(state.joint_pos_rad)
        for link, child, pos, quat in zip(links, expected.children, expected.pos_m, expected.quat_wxyz, strict=True):
            assert link.child_frame_id == child
            place, turn = link.transform.translation, link.transform.rotation
            assert [place.x, place.y, place.z] == pos.tolist()
            assert [turn.w, turn.x, turn.y, turn.z] == quat.tolist()


def test_states_without_a_place_or_without_numbers_are_told_as_far_as_they_go(walk, tmp_path):
    report = walk[0][-1]
    for change, children in (
        ({"pos_base_in_world_m": None}, 12),
        ({"joint_pos_rad": np.full(12, np.nan)}, 1),
        ({"pos_base_in_world_m": np.full(3, np.inf), "joint_pos_rad": np.full(12, np.nan)}, 0),
    ):
        with Recorder(tmp_path / "run.mcap", None, GO2, lossless=True) as recorder:
            recorder.record(replace(report, state=replace(report.state, **change)))
        found, _ = looks_of(tmp_path / "run.mcap")
        assert [len(message.transforms) for _, message in found["/tf"]] == ([children] if children else [])
        assert len(found["/robot_description"]) == 1
