"""What every node shares: parameters within bounds, the steady clock, log files, and saying what does not arrive."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")

from geometry_msgs.msg import Twist, TwistStamped  # noqa: E402
from std_msgs.msg import Empty  # noqa: E402

from gantry_hardware.errors import GantryError  # noqa: E402
from gantry_ros.runtime import host as host_module  # noqa: E402
from gantry_ros.runtime import topics  # noqa: E402
from gantry_ros.runtime.host import NodeHost, Parameter, bounds  # noqa: E402
from gantry_ros.runtime.log_folder import VARIABLE, ensure_log_folder  # noqa: E402
from gantry_ros.runtime.waiting import REPEAT_S, WaitReason  # noqa: E402
from gantry_ros.testing import wait_until  # noqa: E402

SOURCES = Path(__file__).parents[2] / "ros_ws/src"


def test_every_timer_is_the_hosts_which_runs_on_the_steady_clock():
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                receiver = ast.unparse(call.func.value)
                if call.func.attr == "create_rate" or (
                    call.func.attr == "create_timer" and not receiver.endswith("host") and path.name != "host.py"
                ):
                    found.append(f"{path.name}: {ast.unparse(call)}")
    assert found == []


class Scene:
    """A clock that is set by hand, and what was said."""

    def __init__(self):
        self.now_s, self.lines = 0.0, []
        self.reason = WaitReason(self.lines.append, "Not started", settle_s=1.0, clock=lambda: self.now_s)

    def hold(self, reason, seconds):
        for _ in range(round(seconds * 10)):
            self.reason.note(reason)
            self.now_s += 0.1


def test_a_reason_to_wait_is_said_once_and_again_when_it_changes():
    scene = Scene()
    scene.hold("the state is 152 ms old.", 0.8)
    assert scene.lines == []
    scene.hold("the state is 1.5e3 ms old.", 20.0)
    assert len(scene.lines) == 1
    scene.hold("no heartbeat came.", 20.0)
    assert scene.lines[1:] == ["Not started: no heartbeat came."]
    scene.hold("", 5.0)
    scene.hold("no route\x1b[2J has come." + "x" * 10_000, 5.0)
    assert len(scene.lines) == 3
    assert scene.lines[2].isprintable()
    assert len(scene.lines[2]) < 1100


def test_reasons_that_alternate_do_not_fill_the_log():
    scene = Scene()
    for _ in range(100):
        scene.hold("one thing.", 1.5)
        scene.hold("another.", 1.5)
    assert len(scene.lines) <= 2 + 2 * 300.0 / REPEAT_S
    scene = Scene()
    for _ in range(100):  # None lasts.
        scene.hold("one thing.", 0.2)
        scene.hold("another.", 0.2)
    assert scene.lines == []


NUMBERS = {  # What YAML can hold: the last two are no numbers at all.
    "1e-300": "expected 0.01 to 10000",
    "1e308": "expected 0.01 to 10000",
    ".inf": "expected 0.01 to 10000",
    "-.inf": "expected 0.01 to 10000",
    ".nan": "expected 0.01 to 10000",
    "-5": "expected 0.01 to 10000",
    "0": "expected 0.01 to 10000",
    "true": "expected a number",
    "fast": "expected a number",
}


@pytest.mark.parametrize("text", NUMBERS)
def test_a_rate_that_makes_no_sense_is_refused(text):
    parameter = Parameter("diagnostics_rate_hz", 10.0, "A rate, Hz.")
    with NodeHost("node", ["--ros-args", "-p", f"diagnostics_rate_hz:={text}"]) as host:
        with pytest.raises(GantryError, match=NUMBERS[text]) as caught:
            host.declare([parameter])
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("text", "fine"), [("3", True), ("11", False), ("-1", False)])
def test_a_whole_number_has_bounds_too(text, fine):
    with NodeHost("node", ["--ros-args", "-p", f"many:={text}"]) as host:
        parameter = Parameter("many", 3, "How many.", bounds=(0, 10))
        if fine:
            assert host.declare([parameter]) == {"many": 3}
        else:
            with pytest.raises(GantryError, match="expected 0 to 10"):
                host.declare([parameter])


def every_parameter():
    from gantry_ros.nodes import (
        controller_watch_node,
        episode_node,
        mapping_node,
        operator_node,
        policy_node,
        sim_car_node,
        sim_robot_node,
        teleop_node,
    )

    modules = (
        controller_watch_node,
        operator_node,
        episode_node,
        mapping_node,
        policy_node,
        sim_car_node,
        sim_robot_node,
        teleop_node,
    )
    return [(module.NAME, parameter) for module in modules for parameter in module.PARAMETERS]


def test_every_number_of_every_node_has_finite_bounds_and_a_default_within():
    for node, parameter in every_parameter():
        if isinstance(parameter.default, bool | str):
            continue
        least, most = bounds(parameter)
        assert -1e9 < least <= parameter.default <= most < 1e9, (node, parameter.name)
        if parameter.name.endswith("rate_hz"):
            assert least > 0.0, (node, parameter.name)


def test_a_name_that_is_none_leaves_no_context_behind(monkeypatch):
    made = []
    monkeypatch.setattr(host_module, "Context", lambda make=host_module.Context: made.append(make()) or made[-1])
    with pytest.raises(GantryError, match="ROS makes no node 'a name'"):
        NodeHost("a name")
    assert [context.ok() for context in made] == [False]


SAY = (
    "import os; from gantry_ros.runtime.host import NodeHost; NodeHost('a').close(); "
    "print('log', os.environ['ROS_LOG_DIR'])"
)


@pytest.mark.parametrize(
    ("home", "reason"),
    [(None, "HOME is not set"), ("/proc", "'/proc/.ros/log' cannot be made"), ("", "HOME is not set")],
)
def test_a_node_without_a_home_logs_elsewhere_and_says_so_once(home, reason, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", VARIABLE, "ROS_HOME")}
    environment |= {"TMPDIR": str(tmp_path)} | ({} if home is None else {"HOME": home})
    done = subprocess.run([sys.executable, "-c", SAY], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.split()[1])
    assert folder.parent == tmp_path
    assert list(folder.iterdir()) != []
    said = [line for line in done.stderr.splitlines() if VARIABLE in line]
    assert len(said) == 1
    assert reason in said[0]
    assert str(folder) in said[0]


def test_no_folder_at_all_is_one_message_that_names_the_variable(monkeypatch):
    monkeypatch.setenv(VARIABLE, "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    with pytest.raises(GantryError, match=f"Set {VARIABLE} to a folder that can be written"):
        ensure_log_folder()


def test_a_folder_that_can_be_written_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "new"))
    assert ensure_log_folder() == ""
    assert os.environ[VARIABLE] == str(tmp_path / "new")


def test_a_publisher_of_another_type_is_named_with_both_types(rig, capfd):
    with NodeHost("listener") as listener, NodeHost("speaker") as speaker:
        listener.node.create_subscription(Twist, "cmd_vel", lambda _: None, topics.OPERATOR_QOS)
        listener.network.hints["cmd_vel"] = "Set cmd_vel_stamped:=true."
        listener.start()
        publisher = speaker.node.create_publisher(TwistStamped, "cmd_vel", topics.OPERATOR_QOS)
        wait_until(lambda: listener.network.trouble, "the other type")
        assert listener.network.trouble == (
            "/cmd_vel is published as geometry_msgs/msg/TwistStamped, and this node reads geometry_msgs/msg/Twist: "
            "nothing of it arrives. Set cmd_vel_stamped:=true."
        )
        speaker.node.destroy_publisher(publisher)
        wait_until(lambda: not listener.network.trouble, "that it has passed")
    said = capfd.readouterr().err
    assert said.count("is published as geometry_msgs/msg/TwistStamped") == 1
    assert "no publisher of another type any more" in said


def test_a_publisher_of_an_incompatible_quality_of_service_is_said(rig, capfd):
    with NodeHost("listener") as listener, NodeHost("speaker") as speaker:
        listener.node.create_subscription(Empty, "heartbeat", lambda _: None, topics.LATCHED_QOS)
        listener.start()
        speaker.node.create_publisher(Empty, "heartbeat", topics.OPERATOR_QOS)
        said = []
        wait_until(lambda: "incompatible QoS" in (said.append(capfd.readouterr().err) or "".join(said)), "the warning")


def test_timers_run_and_the_missing_clock_is_said_under_use_sim_time(rig, capfd):
    with NodeHost("watcher", ["--ros-args", "-p", "use_sim_time:=true"]) as host:
        ticks = []
        host.create_timer(0.05, lambda: ticks.append(1))
        host.start()
        wait_until(lambda: len(ticks) >= 10 and host.network.trouble, "ticks and the missing clock")
        assert "use_sim_time is true and nothing has come on /clock" in host.network.trouble
    assert capfd.readouterr().err.count("nothing has come on /clock") == 1


def test_a_clock_that_stops_is_said_and_so_is_one_that_runs_again(rig, capfd):
    from rosgraph_msgs.msg import Clock

    with NodeHost("watcher", ["--ros-args", "-p", "use_sim_time:=true"]) as host, NodeHost("simulator") as simulator:
        clock = simulator.node.create_publisher(Clock, "/clock", 1)
        message = Clock()

        def tick():
            message.clock.sec += 1
            clock.publish(message)

        host.start()

        def runs():
            tick()
            return host.node.get_clock().now().nanoseconds > 0 and not host.network.trouble

        wait_until(runs, "the clock")
        wait_until(lambda: "/clock stands still" in host.network.trouble, "that it stands still")
        wait_until(runs, "the clock again")
    assert "ROS time runs again" in capfd.readouterr().err


def test_entities_are_taken_down_by_the_executors_thread(rig, monkeypatch):
    """In another thread they could be missing in the middle of the executor's turn, which locks their group."""
    heard, ticks, threads = [], [], set()
    with NodeHost("talker") as talker, NodeHost("listener") as listener:
        real = listener.node.destroy_subscription
        monkeypatch.setattr(
            listener.node,
            "destroy_subscription",
            lambda entity: threads.add(threading.current_thread().name) or real(entity),
        )
        publisher = talker.node.create_publisher(Empty, "noise", 10)
        talker.create_timer(0.001, lambda: publisher.publish(Empty()))
        listener.create_timer(0.001, lambda: ticks.append(1))
        before = listener.entities()
        listener.node.create_subscription(Empty, "noise", heard.append, 10)
        listener.destroy_all_but(before)
        assert threads == {threading.current_thread().name}, "before the executor runs there is no other thread"
        threads.clear()
        talker.start()
        listener.start()
        for _ in range(20):
            heard.clear()
            for _ in range(5):
                listener.node.create_subscription(Empty, "noise", heard.append, 10)
            wait_until(lambda: heard, 20.0)
            listener.destroy_all_but(before)
            assert listener.entities() == before
        assert threads == {"listener executor"}
        ticks.clear()
        wait_until(lambda: len(ticks) > 3, 20.0)
        assert listener.failure is None
