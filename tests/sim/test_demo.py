"""The demo: its profile, what it measures and judges, its page, and the whole of it over real nodes."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle.locate import bundle_in
from gantry_deploy.cli.main import main
from gantry_deploy.contract.policy_contract import CommandSpec
from gantry_deploy.control.loop import TickReport
from gantry_deploy.control.safety import Fault, FaultCode, Mode
from gantry_deploy.evaluation.gate import Stage
from gantry_deploy.evaluation.metrics import tracking_scores
from gantry_deploy.evaluation.scenario import RolloutConfig, RolloutResult
from gantry_deploy.policy.runner import PolicyStep
from gantry_deploy.process.domains import DOMAINS, free_domain
from gantry_deploy.recording.recorder import Recorder
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_ros.nodes.profile import Segment as OperatorSegment
from gantry_ros.nodes.profile import parse_profile
from gantry_sim.demo import nodes
from gantry_sim.demo.measured import measure_walk, rerun_difference
from gantry_sim.demo.pipeline import write_outcome
from gantry_sim.demo.profile import DEMO_PROFILE, Segment, as_text, command_at, constant, fitted, total_s
from gantry_sim.demo.rollout import LOOP, RECORDING, Rollout, in_process, kept_from_time
from gantry_sim.demo.scenario import DemoConfig, Gate, Outcome, Policy, Recorded
from gantry_sim.demo.scenarios.legs import Legs

GO2 = robot_spec("go2")
DT_S = 0.02
TRAINED = CommandSpec("command/body/velocity", ("x", "y", "yaw"), (-0.6,) * 3, (0.6,) * 3, (0.0,) * 3)


# -- profile ----------------------------------------------------------------------------------------------------------


def test_profile_fits_its_time_and_what_was_trained():
    profile = fitted(DEMO_PROFILE, 10.0, TRAINED)
    assert total_s(DEMO_PROFILE) == 20.0
    assert total_s(profile) == pytest.approx(10.0)
    assert profile[1].command == (0.6, 0.0, 0.0)  # 0.8 was asked for.
    assert profile[3].command == (0.0, 0.4, 0.0)
    assert profile[0].command == profile[-1].command == (0.0, 0.0, 0.0)


def test_profile_goes_every_way():
    commands = np.array([segment.command for segment in DEMO_PROFILE])
    assert commands[:, 0].max() > 0 > commands[:, 0].min()
    assert np.abs(commands[:, 1]).max() > 0
    assert any(x and yaw for x, _, yaw in commands.tolist()), "a curve is both at once"
    assert any(yaw and not x for x, _, yaw in commands.tolist()), "turning on the spot"


def test_command_changes_exactly_at_the_edges():
    profile = (Segment(1.0, (1.0, 0.0, 0.0), "a"), Segment(0.5, (0.0, 2.0, 0.0), "b"))
    assert command_at(profile, 0.98).tolist() == [1.0, 0.0, 0.0]
    assert command_at(profile, sum([0.02] * 50)).tolist() == [0.0, 2.0, 0.0]  # 1.0000000000000004
    assert command_at(profile, 1.0 - 1e-12).tolist() == [0.0, 2.0, 0.0]
    assert command_at(profile, 1.5).tolist() == [0.0, 0.0, 0.0]


def test_operator_node_reads_the_profile_as_it_was_meant():
    profile = constant((0.25, -0.5, 1.0), 3.0) + DEMO_PROFILE
    assert parse_profile(as_text(profile)) == tuple(
        OperatorSegment(segment.seconds, *segment.command) for segment in profile
    )


# -- recording --------------------------------------------------------------------------------------------------------


def state(time_s, velocity, height_m=0.3):
    return RobotState(
        stamp_s=time_s,
        joint_pos_rad=GO2.array("default_rad"),
        joint_vel_rad_s=np.zeros(12),
        joint_effort_nm=np.zeros(12),
        quat_base_to_world_wxyz=np.array([1.0, 0.0, 0.0, 0.0]),
        ang_vel_base_in_base_rad_s=np.array([0.0, 0.0, velocity[2]]),
        lin_acc_base_in_base_m_s2=np.zeros(3),
        pos_base_in_world_m=np.array([velocity[0] * time_s, 0.0, height_m]),
        lin_vel_base_in_base_m_s=np.array([velocity[0], velocity[1], 0.0]),
        foot_contact=np.array([True, False, False, True]),
    )


def record(folder, ticks, bundle=None):
    """A recording of ``ticks``: (mode, commanded (3,), measured (3,), base height, fault)."""
    path = folder / "walk.mcap"
    contract = contract_for(GO2) if bundle is None else bundle.contract
    sent = JointCommand.position(GO2, GO2.array("default_rad"))
    with Recorder(path, contract, GO2, lossless=True) as recorder:
        for i, (mode, asked, did, height_m, fault) in enumerate(ticks):
            now_s = 5.0 + i * DT_S
            step = None
            if mode is Mode.POLICY:
                observation = np.zeros(contract.observation_size, np.float32)
                step = PolicyStep(observation, np.zeros(12, np.float32), np.array(asked), sent, 1e-4, 2e-4)
            recorder.record(
                TickReport(now_s, mode, fault, state(now_s, did, height_m), np.array(asked), step, sent, DT_S, 0.001)
            )
    return path


def walking(asked=(0.5, 0.0, 0.2), did=(0.4, 0.0, 0.3), ticks=50):
    return [(Mode.POLICY, asked, did, 0.3, None)] * ticks


STANDING = [(Mode.STAND, (0.0, 0.0, 0.0), (9.0, 9.0, 9.0), 0.3, None)] * 5


def test_measures_what_the_policy_did_and_nothing_else(tmp_path):
    found = measure_walk(record(tmp_path, STANDING + walking() + STANDING))
    assert len(found.time_s) == 50
    assert found.time_s[0] == 0.0
    assert found.time_s[-1] == pytest.approx(49 * DT_S)
    assert found.lin_vel_error_m_s == pytest.approx(0.1, abs=1e-6)
    assert found.yaw_rate_error_rad_s == pytest.approx(0.1, abs=1e-6)
    assert found.distance_m == pytest.approx(0.4 * 49 * DT_S, abs=1e-6)
    assert not found.fell
    assert found.fault == ""
    assert found.contact.mean(axis=0).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert len(found.period_s) == 49


def test_a_tick_answers_for_the_command_of_the_one_before(tmp_path):
    ticks = walking((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 10) + walking((1.0, 0.0, 0.0), (0.0, 0.0, 0.0), 1)
    # The last command was never answered, so it is no error yet.
    assert measure_walk(record(tmp_path, ticks)).lin_vel_error_m_s == 0.0


def test_a_fall_and_what_damped_the_robot_are_seen(tmp_path):
    fault = Fault(FaultCode.TILT, "The base is tilted by 70 degrees.", 6.0)
    down = [(Mode.POLICY, (0.5, 0.0, 0.2), (0.4, 0.0, 0.3), 0.05, None)]
    damped = [(Mode.DAMP, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.05, fault)]
    found = measure_walk(record(tmp_path, walking() + down + damped * 3))
    assert found.fell
    assert found.fault == fault.text
    assert found.lin_vel_error_m_s == pytest.approx(0.1, abs=1e-6)


def test_what_happens_after_the_policy_was_stopped_is_not_held_against_it(tmp_path):
    fault = Fault(FaultCode.STALE_STATE, "The robot's state is old.", 6.0)
    damped = [(Mode.DAMP, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.3, fault)]
    assert measure_walk(record(tmp_path, walking() + STANDING + damped)).fault == ""


def test_a_recording_without_a_policy_is_refused(tmp_path):
    with pytest.raises(GantryError, match="never ran"):
        measure_walk(record(tmp_path, STANDING))
    with pytest.raises(GantryError, match="cannot be read"):
        measure_walk(tmp_path / "no.mcap")


# -- verdict and page -------------------------------------------------------------------------------------------------


def scores_of(error, falls=0):
    result = tracking_scores([error] * 10, [0.1] * 10, [True] * falls + [False] * (10 - falls))
    return {
        "episodes": 10,
        **{name: vars(getattr(result, name)) for name in ("lin_vel_error_m_s", "yaw_rate_error_rad_s", "fall_rate")},
    }


@pytest.fixture
def outcome(tmp_path):
    """Of a demo in which everything went well."""
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    rows = [(1, 0.1, 0.5), (2, 0.2, 0.3), (3, 0.2, 0.12)]
    lines = [{"kind": "train", "wall_s": w, "reward_per_s": r, "lin_vel_error_m_s": e} for w, r, e in rows]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = RolloutResult((), tracking_scores([0.1] * 3, [0.1] * 3, [False] * 3))
    recording = record(tmp_path, walking(), bundle)
    episodes = (measure_walk(recording),)
    walk = Recorded(
        name="walk",
        folder=tmp_path,
        rollout=Rollout(over_ros=True, recording=recording, completed=True, domain="7"),
        episodes=episodes,
        rerun=rerun_difference(episodes, bundle),
        film_note="Cannot draw off screen here.",
    )
    return Outcome(
        scenario=Legs(),
        config=DemoConfig(tmp_path, bundle.path),
        policy=Policy(bundle.path, {"training_model": scores_of(0.12), "full_model": scores_of(0.16)}, ""),
        bundle=bundle,
        gate=Gate((Stage("manifest", True, "3 files"),), RolloutConfig(episodes=3), result),
        recorded=(walk,),
        stage_s={"walk": 1.0},
    )


def evaluated(outcome, scores):
    """The same outcome with other scores of held-out episodes."""
    return replace(outcome, policy=replace(outcome.policy, evaluation={"training_model": scores}))


def rolled_out(outcome, **changes):
    """The same outcome with another recorded walk."""
    return replace(outcome, recorded=(replace(outcome.recorded[0], **changes),))


def walked(outcome, **changes):
    """The same outcome with another measured walk."""
    return rolled_out(outcome, episodes=(replace(outcome.recorded[0].episodes[0], **changes),))


def test_all_is_well_and_the_page_stands_alone(outcome):
    assert outcome.passed
    page = write_outcome(outcome).read_text()
    assert "A Go2 walks over ROS 2" in page
    assert page.count("<svg") == 5
    assert "Cannot draw off screen here." in page
    assert "✗ fail" not in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", page), "it asks nothing of the network"
    assert "reward per second" in page
    result = json.loads((outcome.config.output / "demo.json").read_text())
    assert result["passed"] is True
    assert {score["name"] for score in result["scores"] if score["passed"] is False} == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "missed"),
    [
        (lambda one: evaluated(one, scores_of(0.151)), "held out: velocity error"),
        (lambda one: evaluated(one, scores_of(0.1, falls=1)), "held out: falls"),
        (
            lambda one: rolled_out(one, rollout=Rollout(True, Path(), False, "the battery is empty")),
            "over ROS 2: share of the profile driven",
        ),
        (lambda one: rolled_out(one, episodes=()), "over ROS 2: velocity error"),
    ],
)
def test_one_miss_is_a_no_and_the_page_says_which(outcome, change, missed):
    worse = change(outcome)
    assert not worse.passed
    page = write_outcome(worse).read_text()
    assert worse.missed == [missed]
    assert f"Missed: {missed}." in page
    assert worse.recorded[0].rollout.trouble in page


@pytest.mark.parametrize("trained", [False, True])
def test_the_time_of_a_training_is_told_and_never_judged(outcome, trained):
    """A machine that does other things as well takes longer, and the policy is none the worse for it."""
    provenance = replace(outcome.bundle.contract.provenance, train_wall_s=50_000.0)
    bundle = replace(outcome.bundle, contract=replace(outcome.bundle.contract, provenance=provenance))
    config = replace(outcome.config, bundle=None if trained else bundle.path)
    slow = replace(outcome, bundle=bundle, config=config, stage_s={"training": 50_000.0})
    assert slow.passed
    (score,) = (score for score in slow.scores() if score.name.startswith("training time"))
    assert (score.value, score.limit, score.passed) == (50_000.0, None, None)


def test_a_short_walk_gets_no_verdict_on_its_velocity(outcome):
    slow = walked(outcome, lin_vel_error_m_s=0.3)
    assert not slow.passed
    short = replace(slow, scenario=Legs(seconds=9.0))
    assert short.passed
    assert "no verdict below 12 s" in short.score("over ROS 2: velocity error").note
    assert not walked(short, fault="It fell over.").passed


def test_what_nobody_measured_is_said_in_words(outcome):
    nothing = rolled_out(outcome, episodes=())
    score = nothing.score("over ROS 2: velocity error")
    assert score.text(score.value) == "not measured"
    assert "nan" not in write_outcome(nothing).read_text()


def test_a_closed_gate_is_a_no(outcome):
    gate = replace(outcome.gate, stages=(Stage("manifest", False, "changed"),))
    assert not replace(outcome, gate=gate).passed


def test_the_page_says_plainly_that_it_went_without_ros(outcome):
    alone = rolled_out(outcome, rollout=Rollout(False, Path("walk.mcap"), True), note="ROS 2 is not installed")
    page = write_outcome(alone).read_text()
    assert "Not over ROS 2: ROS 2 is not installed." in page
    assert "A Go2 walks in MuJoCo" in page
    assert alone.result()["rollouts"][0]["over_ros"] is False


def test_the_page_says_plainly_that_it_did_not_follow_the_clock(outcome):
    again = replace(outcome.recorded[0].rollout, over_ros=False, earlier=("A turn was missed.",), paced=False)
    page = write_outcome(rolled_out(outcome, rollout=again)).read_text()
    assert "did not wait for the clock" in page
    assert "Earlier attempts ended with: A turn was missed." in page


def test_a_walk_that_a_busy_machine_breaks_is_walked_again_without_the_clock(tmp_path):
    bundle = tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    said = []

    def slow(line: str) -> None:  # It holds the loop up whenever that has something to say.
        said.append(line)
        time.sleep(0.3)

    walk = in_process(Legs(seconds=0.4).plan("walk", bundle, tmp_path, print), slow)
    assert walk.completed
    assert not walk.paced
    assert len(walk.earlier) == 1
    assert any("This machine is busy: attempt 2 of 2." in line for line in said)
    assert measure_walk(walk.recording).time_s == pytest.approx(DT_S * np.arange(21))


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_the_bundle_of_a_run_folder_is_found(tmp_path):
    tiny_bundle(tmp_path / "run" / "bundle")
    assert bundle_in(tmp_path / "run") == tmp_path / "run" / "bundle"
    assert bundle_in(tmp_path / "run" / "bundle") == tmp_path / "run" / "bundle"
    assert bundle_in(tmp_path / "nothing") == tmp_path / "nothing"


def test_a_free_domain_is_one_that_nobody_listens_in():
    left = 7
    with contextlib.ExitStack() as stack:
        for domain in DOMAINS:
            if domain != left:
                listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                with contextlib.suppress(OSError):  # Then somebody else listens there, which is as good.
                    listener.bind(("", 7400 + 250 * domain + 10))
        assert free_domain() == left
    assert free_domain() in DOMAINS


def test_two_processes_never_choose_the_same_domain():
    code = (
        "from gantry_deploy.process.domains import free_domain\n"
        "print(*[free_domain() for _ in range(20)], flush=True)\ninput()"
    )
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(2)
        ]
        first, second = (set(process.stdout.readline().split()) for process in both)
        for process in both:
            process.communicate("\n")
    assert len(first) == len(second) == 20
    assert not first & second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "1"], "--seconds is 1"),
        (["--check-episodes", "0"], "--check-episodes is 0"),
        (["--bundle", "no/such"], "no/such"),
        (["--task", "velocity-flat-go3"], "velocity-flat-go2"),
        (["--set", "env.num_env=3"], "num_envs"),
        (["--seed", "10007"], "10007"),
        (["--bundle", "b", "--set", "env.num_envs=3"], "train nothing"),
        (["--seconds", "nan"], "--seconds is nan"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(tmp_path, capsys, arguments, message):
    output = tmp_path / "demo"
    assert main(["demo", *arguments, "--output", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("policy", [["--bundle", "bundle"], ["--pretrained"], []])
def test_a_folder_in_use_is_left_alone(tmp_path, monkeypatch, capsys, policy):
    monkeypatch.chdir(tmp_path)
    tiny_bundle(tmp_path / "bundle", contract_for(GO2))
    assert main(["demo", *policy, "--output", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, "in use" in err) == ("", True)
    assert [item.name for item in tmp_path.iterdir()] == ["bundle"]


# -- the whole of it --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_ros_the_same_profile_is_walked_in_one_process(tmp_path, capsys):
    tiny_bundle(tmp_path / "given", contract_for(GO2))
    words = ["demo", "--bundle", str(tmp_path / "given"), "--output", str(tmp_path / "out")]
    words += ["--json", str(tmp_path / "result.json"), "--seconds", "4", "--check-episodes", "1", "--episodes", "0"]
    assert main([*words, "--no-ros"]) == 1  # A policy that only stands misses its thresholds.
    said = capsys.readouterr().out
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["rollouts"][0]["over_ros"] is False
    assert result["rollouts"][0]["ticks"] > 0
    assert f"Bundle: {tmp_path / 'out' / 'bundle'}" in said
    assert "[3/3] Film it, and write the report" in said
    assert "1 episode in plain" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Not over ROS 2: it was asked to do without." in page
    assert "It was not scored on held-out episodes" in page


@pytest.mark.slow
def test_a_machine_too_busy_for_ros_walks_once_more_without_the_clock(tmp_path, monkeypatch, capsys):
    """Nodes that the clock damps in every attempt are followed by the same walk without it, and the page says so."""
    late = "The robot's state is 63 ms old, allowed are 50 ms (safety.state_timeout_s)."
    tiny_bundle(tmp_path / "given", contract_for(GO2))
    out = tmp_path / "out"
    damped = Rollout(True, out / RECORDING, False, late, "7", earlier=(late,), late=True)
    monkeypatch.setattr(nodes, "ros_trouble", lambda: "")
    monkeypatch.setattr(nodes, "over_ros", lambda plan, say: damped)
    words = ["demo", "--bundle", str(tmp_path / "given"), "--output", str(out), "--seconds", "4", "--no-video"]
    main([*words, "--check-episodes", "1", "--episodes", "0", "--json", str(tmp_path / "result.json")])
    walk = json.loads((tmp_path / "result.json").read_text())["rollouts"][0]
    assert (walk["over_ros"], walk["completed"], walk["earlier_attempts"]) == (False, True, [late, late])
    assert walk["ticks"] == 200 + 1
    assert "the same in this process, without the clock" in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "Not over ROS 2: this machine is too busy for the robot's clock" in page.replace("&#x27;", "'")
    assert "did not wait for the clock" in page


def test_a_walk_that_misses_something_on_a_quiet_machine_is_not_walked_again(tmp_path):
    walk = Rollout(True, tmp_path / RECORDING, True)
    assert not kept_from_time(walk)
    (tmp_path / LOOP).write_text(json.dumps({"missed_deadlines": 0}))
    assert not kept_from_time(walk)
    (tmp_path / LOOP).write_text(json.dumps({"missed_deadlines": 3}))
    assert kept_from_time(walk)
    assert not kept_from_time(replace(walk, over_ros=False))
    assert kept_from_time(Rollout(True, tmp_path / "none" / RECORDING, False, "late", late=True))
