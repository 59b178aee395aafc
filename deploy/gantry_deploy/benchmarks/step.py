"""Times of one policy step: judging, observing and inferring on made-up inputs."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.safety import Event, Mode, SafetyMachine
from gantry_deploy.control.timing import TimingLog
from gantry_deploy.policy.onnx_policy import Images
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.state import RobotState
from gantry_hardware.model.spec import RobotSpec

FIXED_SUMS = 1000
"""Sums of twelve numbers each that are timed after each step: what their p99 has over their median is the machine's."""
FIXED = "fixed arithmetic"
"""Name of the result."""
_STATES = 256
"""Made-up readings that steps take in turn."""


def measure_step(
    runner: PolicyRunner, spec: RobotSpec, iterations: int, *, plan: bool = False
) -> dict[str, dict[str, float]]:
    """Time judging, observing and inferring on random readings around the pose at rest, with random pictures and maps.

    Args:
        runner: The policy.
        spec: Its robot.
        iterations: Steps that are timed; a tenth as many before them are not.
        plan: Forget plans before every step, so that the network is asked in each.

    Returns:
        Of ``observe``, ``infer``, ``safety`` and ``step`` (their sum), and of :data:`FIXED`: count, mean, p50, p99 and
        max, seconds.
    """
    rng, contract = np.random.default_rng(0), runner.contract
    rest, around = runner.embodiment.rest_state(contract), runner.embodiment.rest_surroundings(contract)
    states = [random_state(rest, rng) for _ in range(_STATES)]
    window = contract.map_window
    shape = None if window is None else (window.rows, window.cols, len(window.channels))
    maps = [None if shape is None else rng.normal(0.0, 0.03, shape) for _ in states]
    pictures = _random_images(runner, rng)
    tell(runner)
    command = np.zeros(len(contract.command.names))
    if shape is not None:
        command[0] = 1.0  # walking takes more work than standing
    safety = SafetyMachine(spec)
    for event in (Event.STAND, Event.START):  # What is judged depends on the mode.
        safety.request(event)
    timing, twelve = TimingLog(("observe", "infer", "safety", "step", FIXED), iterations), np.ones((1, 12), np.float32)
    for i in range(-(iterations // 10), iterations):
        state = states[i % _STATES]
        if plan:
            runner.replan()
        start = time.perf_counter()
        safety.judge(state, state.stamp_s, Mode.POLICY, requested_command=command)
        judged = time.perf_counter()
        step = runner.step(state, command, maps[i % _STATES], pictures, around)
        stepped = time.perf_counter()
        safety.judge.targets(step.target, state.stamp_s, "policy")
        done = time.perf_counter()
        _fixed_arithmetic(twelve)
        fixed = time.perf_counter()
        if i < 0:
            continue
        timing.add("observe", step.observe_s)
        timing.add("infer", step.infer_s)
        timing.add("safety", judged - start + done - stepped)
        timing.add("step", done - start)
        timing.add(FIXED, fixed - done)
    return timing.summary()


def random_state(rest: RobotState, rng: np.random.Generator) -> RobotState:
    """A reading near a robot at rest; what it reports of things around it stays as it is."""
    quat, n = np.array([1.0, 0.0, 0.0, 0.0]) + rng.normal(0.0, 0.02, 4), len(rest.joint_pos_rad)
    return replace(
        rest,
        joint_pos_rad=rest.joint_pos_rad + rng.normal(0.0, 0.05, n),
        joint_vel_rad_s=rng.normal(0.0, 1.0, n),
        joint_effort_nm=rng.normal(0.0, 1.0, n),
        quat_base_to_world_wxyz=quat / np.linalg.norm(quat),
        ang_vel_base_in_base_rad_s=rng.normal(0.0, 0.3, 3),
        lin_vel_base_in_base_m_s=rng.normal(0.0, 0.1, 3),
    )


def example_of(contract: PolicyContract) -> str:
    """Instruction for timing: an example of the contract, or a word of its vocabulary; empty without instructions."""
    spec = contract.instruction
    return "" if spec is None else (*spec.examples, spec.vocabulary[0])[0]


def tell(runner: PolicyRunner) -> None:
    """Tell a policy that follows instructions one for timing."""
    if text := example_of(runner.contract):
        runner.instruct(text)


def _random_images(runner: PolicyRunner, rng: np.random.Generator) -> Images | None:
    cameras = runner.contract.cameras
    return {item.name: rng.integers(0, 256, (3, item.height, item.width), np.uint8) for item in cameras} or None


def _fixed_arithmetic(values: NDArray[np.float32]) -> None:
    for _ in range(FIXED_SUMS):
        np.add(values, values)
