"""Bags become datasets: numbers sampled as worked out by hand, pictures at their frames, episodes at their places."""

import numpy as np
import pytest

from gantry_deploy.dataset import Dataset
from gantry_deploy.dataset.bags.config import bag_cfg
from gantry_deploy.dataset.bags.convert import convert_bags
from gantry_deploy.dataset.bags.messages import BagError
from gantry_deploy.dataset.checks.check import check_dataset

STATE, ACTION, FRONT = "observation.state", "action", "observation.images.front"


def mapping(make, **changes):
    return bag_cfg({**make.MAPPING, **changes})


def numbers(make, **changes):
    """The mapping of states and actions alone."""
    features = {name: item for name, item in make.MAPPING["features"].items() if name != FRONT}
    return mapping(make, **{"features": features, **changes})


def read(folder, name, episode=0):
    return Dataset(folder).frames(episode, [name])[name]


def test_an_arm_with_a_camera(make, tmp_path):
    bag = make.write_mcap(tmp_path / "bag.mcap", make.arm())
    done = convert_bags([bag], tmp_path / "d", mapping(make))
    assert (done.episodes, done.frames, done.notes) == (1, 21, ())
    dataset = Dataset(tmp_path / "d")
    assert (dataset.fps, dataset.robot_type, dataset.tasks) == (10, "arm", ["pick"])
    assert dataset.features[STATE].names == ("a", "b")
    assert dataset.features[STATE].unit == "rad"
    assert dataset.features[ACTION].names == ("data[0]", "data[1]")
    states = 2 * np.arange(21)  # Twenty messages a second, ten frames.
    np.testing.assert_array_equal(read(tmp_path / "d", STATE), np.stack([states, 10 + states], axis=1))
    np.testing.assert_array_equal(read(tmp_path / "d", ACTION), np.stack([0.5 * states, -states], axis=1))
    grey = read(tmp_path / "d", FRONT).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(grey, 5 * np.arange(21), atol=2)
    assert check_dataset(tmp_path / "d", decode=True) == []


def test_the_last_message_at_or_before_a_frame_counts(make, tmp_path):
    """Frames at 0, 0.1, 0.2, ... after the first moment at which both topics have a value, which is 0.05 s."""
    times = [0.0, 0.05, 0.149, 0.15, 0.151, 0.27, 0.36]
    messages = [
        ("/joint_states", make.JOINTS, make.ns(t), make.joints(make.ns(t), ("a", "b"), (i, 0)))
        for i, t in enumerate(times)
    ]
    messages.append(("/command", make.ARRAY, make.ns(0.02), make.array((7, 8))))
    messages.sort(key=lambda item: item[2])
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    convert_bags([bag], tmp_path / "d", numbers(make))
    # 0.02: message 0; 0.12: 1; 0.22: 4; 0.32: 5; the next frame would be at 0.42, after the last state.
    assert read(tmp_path / "d", STATE)[:, 0].tolist() == [0, 1, 4, 5]
    features = {STATE: {"topic": "/joint_states", "joints": ["a", "b"], "interpolate": True}, ACTION: "/command.data"}
    convert_bags([bag], tmp_path / "e", numbers(make, features=features))
    expected = [0.02 / 0.05, 1 + 0.07 / 0.099, 4 + 0.069 / 0.119, 5 + 0.05 / 0.09]
    np.testing.assert_allclose(read(tmp_path / "e", STATE)[:, 0], expected, rtol=1e-5)


def test_a_value_after_the_frame_is_the_next_state(make, tmp_path):
    bag = make.write_mcap(tmp_path / "bag.mcap", make.arm(1.0))
    features = {STATE: "/joint_states.position", ACTION: {"topic": "/joint_states", "offset_s": 0.1}}
    convert_bags([bag], tmp_path / "d", numbers(make, features=features))
    state, action = read(tmp_path / "d", STATE), read(tmp_path / "d", ACTION)
    assert len(state) == 11
    np.testing.assert_array_equal(action[:-1], state[1:])
    np.testing.assert_array_equal(action[-1], state[-1])  # There is none after the last one.


def test_what_comes_too_late_ends_or_splits_an_episode(make, tmp_path):
    def late(time_ns):
        return 0.7 < (time_ns - make.ns(0)) / 1e9 < 1.65

    messages = [item for item in make.arm() if item[0] != "/command" or not late(item[2])]
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    # The last command is of 0.7 s, and 0.25 s later there is still no other one: frames up to 0.9 s, and from 1.7 s on.
    done = convert_bags([bag], tmp_path / "end", numbers(make, max_age_s=0.25))
    assert (done.episodes, done.frames) == (1, 10)
    assert "'/command' is older than 0.25 s after 1.00 s" in done.notes[0]
    done = convert_bags([bag], tmp_path / "split", numbers(make, max_age_s=0.25, stale="split"))
    assert [row.length for row in Dataset(tmp_path / "split").episodes] == [10, 4]
    assert convert_bags([bag], tmp_path / "hold", numbers(make, max_age_s=0.25, stale="hold")).frames == 21
    with pytest.raises(BagError, match="'/command' is older"):
        convert_bags([bag], tmp_path / "refuse", numbers(make, max_age_s=0.25, stale="refuse"))
    assert not (tmp_path / "refuse").exists()
    own = {**make.MAPPING["features"], ACTION: {"topic": "/command", "field": "data", "max_age_s": 2.0}}
    assert convert_bags([bag], tmp_path / "own", numbers(make, max_age_s=0.25, features=own)).frames == 21


def test_messages_out_of_order_and_twice(make, tmp_path):
    messages = make.arm(1.0)
    states = [index for index, item in enumerate(messages) if item[0] == "/joint_states"]
    messages[states[4]], messages[states[8]] = messages[states[8]], messages[states[4]]
    again = messages[states[6]]
    messages.insert(states[10], (*again[:3], make.joints(again[2], ("a", "b"), (99, 98))))
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    done = convert_bags([bag], tmp_path / "d", numbers(make))
    assert read(tmp_path / "d", STATE)[:, 0].tolist() == [0, 2, 4, 99, 8, 10, 12, 14, 16, 18, 20]
    told = " ".join(done.notes)
    assert "put in order" in told
    assert "1 messages had the time of another one" in told


def test_a_clock_that_goes_back_ends_the_episode(make, tmp_path):
    bag = make.write_mcap(tmp_path / "bag.mcap", [*make.arm(2.0), *make.arm(1.0, start=-5.0)])
    done = convert_bags([bag], tmp_path / "d", mapping(make))
    assert [row.length for row in Dataset(tmp_path / "d").episodes] == [21, 11]
    assert "the clock went back 1 times" in done.notes[-1]
    np.testing.assert_allclose(read(tmp_path / "d", FRONT, 1).mean(axis=(1, 2, 3)), 5 * np.arange(11), atol=2)


def test_stamps_of_headers(make, tmp_path):
    """States are recorded 30 ms late; a command has no header and keeps its time of recording."""
    messages = []
    for index in range(21):
        at = make.ns(index / 20)
        messages.append(("/joint_states", make.JOINTS, at + 30_000_000, make.joints(at, ("a", "b"), (index, 0))))
        messages.append(("/command", make.ARRAY, at, make.array((index, 0))))
    bag = make.write_mcap(tmp_path / "bag.mcap", sorted(messages, key=lambda item: item[2]))
    convert_bags([bag], tmp_path / "header", numbers(make, stamps="header"))
    np.testing.assert_array_equal(read(tmp_path / "header", STATE)[:, 0], read(tmp_path / "header", ACTION)[:, 0])
    convert_bags([bag], tmp_path / "log", numbers(make))
    assert read(tmp_path / "log", STATE)[:3, 0].tolist() == [0, 2, 4]
    assert read(tmp_path / "log", ACTION)[:3, 0].tolist() == [0, 2, 4]


def test_parts_of_a_robot_on_one_topic(make, tmp_path):
    """Arm and gripper publish by themselves: each message names some joints, in any order."""
    messages = []
    for index in range(11):
        at = make.ns(index / 10)
        names, values = (("a", "b"), (index, -index)) if index % 3 else (("b", "a"), (-index, index))
        messages.append(("/joint_states", make.JOINTS, at, make.joints(at, names, values)))
        messages.append(("/joint_states", make.JOINTS, at + 1000, make.joints(at, ("grip",), (0.1 * index,))))
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    features = {STATE: {"topic": "/joint_states", "joints": ["grip", "b", "a"], "scale": 2.0}}
    convert_bags([bag], tmp_path / "d", numbers(make, features=features))
    expected = [[0.2 * i, -2 * i, 2 * i] for i in range(11)]
    np.testing.assert_allclose(read(tmp_path / "d", STATE), expected, rtol=1e-6)


def test_several_sources_of_one_feature(make, tmp_path):
    messages = make.arm(1.0)
    twist = {"linear": {"x": 1.0, "y": 2.0, "z": 3.0}, "angular": {"x": 4.0, "y": 5.0, "z": 6.0}}
    messages.insert(0, ("/cmd_vel", "geometry_msgs/msg/Twist", make.ns(0), twist))
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    sources = [
        "/joint_states.position[1]",
        {"topic": "/cmd_vel", "field": "linear", "max_age_s": 10},
        "/command.data[0:1]",
    ]
    features = {STATE: sources, ACTION: {"topic": "/cmd_vel", "max_age_s": 10}}
    convert_bags([bag], tmp_path / "d", numbers(make, features=features))
    dataset = Dataset(tmp_path / "d")
    assert dataset.features[STATE].names == ("position", "linear.x", "linear.y", "linear.z", "data[0]")
    assert dataset.features[ACTION].names[0] == "linear.x"
    assert dataset.frames(0)[STATE][1].tolist() == [2, 1, 2, 3, 1]
    assert dataset.frames(0)[ACTION][0].tolist() == [1, 2, 3, 4, 5, 6]


def test_trajectories(make, tmp_path):
    point = {"velocities": [], "accelerations": [], "effort": [], "time_from_start": {"sec": 0, "nanosec": 0}}
    kind, messages = "trajectory_msgs/msg/JointTrajectory", make.arm(1.0)
    for index in range(11):
        at = make.ns(index / 10)
        points = [{**point, "positions": [index, -index]}, {**point, "positions": [100 + index, 0]}]
        header = {"stamp": make.stamp(at), "frame_id": ""}
        messages.append(("/target", kind, at, {"header": header, "joint_names": ["b", "a"], "points": points}))
    bag = make.write_mcap(tmp_path / "bag.mcap", sorted(messages, key=lambda item: item[2]))
    features = {STATE: "/joint_states", ACTION: {"topic": "/target", "joints": ["a", "b"]}}
    convert_bags([bag], tmp_path / "d", numbers(make, features=features))
    assert read(tmp_path / "d", ACTION)[3].tolist() == [-3, 3]
    features[ACTION] = {"topic": "/target", "point": "last"}
    convert_bags([bag], tmp_path / "e", numbers(make, features=features))
    assert read(tmp_path / "e", ACTION)[3].tolist() == [103, 0]


def events(make, *told):
    return [("/event", make.STRING, make.ns(at), {"data": text}) for at, text in told]


def test_episodes_between_events(make, tmp_path):
    told = events(make, (0.5, "go"), (1.0, "won"), (1.2, "go"), (1.6, "lost"), (2.0, "go"), (2.3, "again"), (2.5, "go"))
    messages = sorted([*make.arm(3.0), *told], key=lambda item: item[2])
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    episodes = {
        "by": "events",
        "start": "/event.data=go",
        "success": ["/event.data=won"],
        "failure": "/event.data=lost",
    }
    episodes["discard"] = "/event.data=again"
    convert_bags([bag], tmp_path / "d", mapping(make, episodes=episodes))
    dataset = Dataset(tmp_path / "d")
    assert [dataset.frames(i)[STATE][0, 0] for i in range(3)] == [10, 24, 50]
    assert [row.length for row in dataset.episodes] == [6, 5, 6]
    ends = [
        [bool(dataset.frames(i)[name][-1].item()) for name in ("next.done", "next.truncated", "next.success")]
        for i in range(3)
    ]
    assert ends == [[True, False, True], [True, False, False], [True, True, False]]
    assert check_dataset(tmp_path / "d", decode=True) == []


def test_episodes_while_a_field_is_true_and_their_tasks(make, tmp_path):
    told = [
        ("/recording", make.BOOL, make.ns(at), {"data": flag})
        for at, flag in ((0.0, False), (0.5, True), (1.0, False), (2.0, True))
    ]
    words = [("/task", make.STRING, make.ns(at), {"data": text}) for at, text in ((0.1, "push"), (1.5, "pull"))]
    bag = make.write_mcap(tmp_path / "bag.mcap", sorted([*make.arm(3.0), *told, *words], key=lambda item: item[2]))
    episodes = {"by": "topic", "topic": "/recording.data"}
    convert_bags([bag], tmp_path / "d", numbers(make, episodes=episodes, task_topic="/task.data"))
    dataset = Dataset(tmp_path / "d")
    assert [(row.length, row.tasks) for row in dataset.episodes] == [(5, ("push",)), (11, ("pull",))]


def test_episodes_between_gaps_and_of_several_bags(make, tmp_path):
    first = make.write_mcap(tmp_path / "one.mcap", [*make.arm(1.0), *make.arm(0.5, start=4.0)])
    second = make.write_mcap(tmp_path / "two.mcap", make.arm(0.4, start=100.0))
    convert_bags([first, second], tmp_path / "d", mapping(make, episodes={"by": "gap", "gap_s": 1.0}))
    assert [row.length for row in Dataset(tmp_path / "d").episodes] == [11, 6, 5]
    assert check_dataset(tmp_path / "d", decode=True) == []


def test_episodes_of_a_service(make, tmp_path):
    """Events of service introspection: each call has up to four, of which the received request counts."""
    kind, messages = "std_srvs/srv/Trigger_Event", make.arm(2.0)
    for at, topic in ((0.5, "/start"), (1.5, "/success")):
        for event_type in range(4):
            info = {
                "event_type": event_type,
                "stamp": make.stamp(make.ns(at)),
                "client_gid": bytes(16),
                "sequence_number": 1,
            }
            request = [{}] if event_type < 2 else []
            response = [] if event_type < 2 else [{"success": True, "message": ""}]
            message = {"info": info, "request": request, "response": response}
            messages.append((f"{topic}/_service_event", kind, make.ns(at) + event_type, message))
    bag = make.write_mcap(tmp_path / "bag.mcap", sorted(messages, key=lambda item: item[2]))
    episodes = {"by": "events", "start": "/start/_service_event", "success": "/success/_service_event"}
    convert_bags([bag], tmp_path / "d", numbers(make, episodes=episodes))
    dataset = Dataset(tmp_path / "d")
    assert [row.length for row in dataset.episodes] == [11]
    assert dataset.successes().tolist() == [True]


def test_numbers_that_are_not_finite_do_not_count(make, tmp_path):
    messages = [
        (
            "/joint_states",
            make.JOINTS,
            make.ns(i / 10),
            make.joints(make.ns(i / 10), ("a", "b"), (float("nan") if i in (0, 3) else i, 0)),
        )
        for i in range(6)
    ]
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    done = convert_bags([bag], tmp_path / "d", numbers(make, features={STATE: "/joint_states"}))
    assert read(tmp_path / "d", STATE)[:, 0].tolist() == [1, 2, 2, 4, 5]
    assert "2 messages without finite numbers" in done.notes[0]
