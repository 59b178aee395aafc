"""``gantry bench``: what is measured, what is reported; no numbers of this machine are judged."""

import json
import queue
from dataclasses import replace

import numpy as np
import pytest

from gantry_deploy.benchmarks.ros import wait_for_policy
from gantry_deploy.benchmarks.runtime import aims_of, bundle_at_rate, measure_loop, measure_timer
from gantry_deploy.benchmarks.step import measure_step
from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.contract.parts import InstructionSpec
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.testing.legs import contract_for, tiny_bundle
from gantry_fixtures.arm import arm_bundle, told_contract, told_plan, with_cameras
from gantry_fixtures.footsteps import stepping_contract
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec

SPEC = robot_spec("go2")


@pytest.fixture
def bundle(tmp_path):
    return tiny_bundle(tmp_path / "bundle", contract_for(SPEC), hidden=(8,))


def test_a_step_costs_at_least_its_parts(bundle):
    rows = measure_step(PolicyRunner(bundle, SPEC), SPEC, 50)
    assert set(rows) == {"observe", "infer", "safety", "step", "fixed arithmetic"}
    assert all(row["count"] == 50 for row in rows.values())
    # The three parts are cut out of the whole, sample by sample, so this holds however slow or busy the machine is.
    parts_s = sum(rows[name]["mean_s"] for name in ("observe", "infer", "safety"))
    assert rows["step"]["mean_s"] >= 0.999 * parts_s


def test_steps_and_loops_of_a_policy_that_looks_at_a_map(tmp_path):
    """On a robot with a camera; the others are left out, with the reason."""
    pytest.importorskip("mujoco")
    contract = stepping_contract()
    bundle = load_bundle(tiny_bundle(tmp_path / "steps", contract, hidden=(8,)).path)
    rows = measure_step(PolicyRunner(bundle, SPEC), SPEC, 30)
    assert all(row["count"] == 30 for row in rows.values())
    loop = measure_loop(bundle, SPEC, "mujoco", 20.0, 2.0)
    assert loop["timing"]["infer"]["count"] > 0
    with pytest.raises(GantryError, match="neither a depth camera nor a map"):
        measure_loop(bundle, SPEC, "mock", 20.0, 1.0)


def test_steps_of_a_policy_that_is_told_and_looks_at_pictures_and_of_one_that_drives(tmp_path):
    yam = robot_spec("yam")
    told = told_contract(yam, InstructionSpec(("lift", "push"), ("lift the red cube",)))
    told = with_cameras(told, "wrist", "front", size_px=8)
    weight, bias = told_plan()
    runner = PolicyRunner(arm_bundle(tmp_path / "arm", told, weight=weight, bias=bias), yam)
    assert measure_step(runner, yam, 30)["infer"]["count"] == 30
    assert runner.instruction == "lift the red cube"
    silent = replace(told, instruction=InstructionSpec(("lift", "push"), ()))
    runner = PolicyRunner(arm_bundle(tmp_path / "silent", silent, weight=weight, bias=bias), yam)
    measure_step(runner, yam, 3)
    assert runner.instruction == "lift"
    car = load_bundle(find_bundle("pretrained:drive-race"))
    spec = robot_spec(car.contract.robot)
    assert measure_step(PolicyRunner(car, spec), spec, 30)["step"]["count"] == 30


def test_a_loop_runs_the_policy_at_the_asked_rate(bundle):
    for _ in range(5):
        loop = measure_loop(bundle, SPEC, "mock", 20.0, 1.0)
        if loop["mode"] == "POLICY":
            break
        # A machine that stood still for five ticks damps the robot, and rightly so.
        assert loop["fault"]["code"] in ("missed_deadlines", "stale_state"), loop["fault"]
    assert loop["mode"] == "POLICY"
    timing = loop["timing"]
    # Every tick asks the policy. Deadlines are left out, never added: a slow machine has fewer ticks, none has more.
    assert 0 < timing["infer"]["count"] <= 21
    assert timing["period"]["count"] in (timing["infer"]["count"] - 1, timing["infer"]["count"])
    assert timing["jitter"]["count"] == timing["period"]["count"]


def test_a_bare_timer_keeps_its_rate_on_the_whole():
    timing = measure_timer(100.0, 0.5)
    assert timing["period"]["count"] == timing["jitter"]["count"] == 50
    # Deadlines are absolute: whatever single wake-ups do, fifty of them take at least half a second, bar the clock.
    assert timing["period"]["mean_s"] * 50 >= 0.4999


def test_another_rate_makes_another_sound_bundle(bundle, tmp_path):
    other = load_bundle(bundle_at_rate(bundle, 200.0, tmp_path / "other"))
    assert other.contract.rate_hz == 200.0
    observation = np.ones(other.contract.observation_size, np.float32)
    actions = []
    for item in (bundle, other):
        runner = PolicyRunner(item, SPEC)  # Refuses a network that carries another contract.
        actions.append(runner._policy(observation[None]).action)
    np.testing.assert_array_equal(*actions)


def result(step_ms, ros):
    return {"compute": {"step": {"p99_s": step_ms * 1e-3}}, "ros": ros}


def test_aims_are_told_in_milliseconds_and_skipped_loops_left_out():
    loops = [
        {"rate_hz": 50.0, "timing": {"jitter": {"p99_s": 0.0025}}},
        {"rate_hz": 200.0, "timing": {"jitter": {"p99_s": 0.1}}},
        {"rate_hz": 50.0, "skipped": "no ROS"},
    ]
    assert aims_of(result(0.4, loops)) == {
        "policy step p99": {"value": pytest.approx(0.4), "aim": 0.5},
        "ROS 2 jitter p99 at 50 Hz": {"value": pytest.approx(2.5), "aim": 2.0},
    }


def lines(*texts):
    items = queue.Queue()
    for text in texts:
        items.put(text)
    return items


def test_nodes_that_end_or_damp_are_told_with_their_words():
    said = []
    wait_for_policy(lines("hello", "policy_node | [INFO] Mode POLICY."), said)
    assert said[0] == "hello"
    with pytest.raises(GantryError, match="the nodes ended; they said: no such bundle"):
        wait_for_policy(lines("no such bundle", None), [])
    with pytest.raises(GantryError, match="damped before the policy ran: Mode DAMP: stale"):
        wait_for_policy(lines("Mode DAMP: stale"), [])


def test_the_command_reports_everything_as_json(tmp_path, capsys, bundle):
    pytest.importorskip("mujoco")
    target = tmp_path / "bench.json"
    arguments = ("--no-ros", "--seconds", "0.2", "--rates", "100", "--iterations", "20", "--json", str(target))
    assert main(["bench", "runtime", str(bundle.path), *arguments]) == 0
    report = json.loads(target.read_text())
    assert [loop["backend"] for loop in report["loops"]] == ["mock", "mujoco"]
    assert report["ros"] == []
    assert report["timers"][0]["timing"]["period"]["count"] == 20
    assert report["machine"]["cores"] > 0
    assert report["compute"]["infer"]["count"] == 20
    assert report["compute"]["fixed arithmetic"]["count"] == 20
    said = capsys.readouterr().out
    assert "\nfixed arithmetic " in said
    assert "ROS 2: left out on request" in said


def test_a_wrong_bench_or_option_is_answered_with_the_near_miss(capsys):
    assert main(["bench", "runtme"]) == 2
    assert "Did you mean 'runtime'?" in capsys.readouterr().err
    assert main(["bench", "runtime", "--secnds", "3"]) == 2
    assert "'gantry bench runtime' '--secnds'. Did you mean '--seconds'?" in capsys.readouterr().err
    assert main(["bench"]) == 2
    assert "BENCH" in capsys.readouterr().err
