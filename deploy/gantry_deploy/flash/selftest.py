"""Self-test of a release on the robot's computer, before it becomes the current one: load, compare, time, look around.

It runs in the interpreter that will run the release, which is another one where the release brings its own runtime.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import RobotHome
from gantry_deploy.flash.release import VENV
from gantry_hardware.backends.registry import backend_factory, check_options
from gantry_hardware.errors import GantryError, RobotError
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.yaml_file import read_yaml
from gantry_hardware.robots import robot_spec

STEPS = 50
"""Policy steps that are timed."""
PATIENCE_S = 300.0
"""Longest time of a self-test in another interpreter, and of installing one."""

Say = Callable[[str, bool, str], None]
"""Told of each stage: its name, whether it passed, and the result in words."""


def python_of(home: RobotHome, release: str) -> str:
    """Interpreter that runs a release: that of its own runtime if it brought one, else this one."""
    own = home.releases / release / VENV / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def install_runtime(home: RobotHome, release: str, say: Say) -> None:
    """Make the environment of a release that brings wheels; nothing is fetched from anywhere.

    Raises:
        FlashError: If pip refuses.
    """
    folder = home.releases / release
    if not (folder / "wheels").is_dir() or python_of(home, release) != sys.executable:
        return
    venv, wheels = folder / VENV, sorted(str(path) for path in (folder / "wheels").glob("*.whl"))
    base = getattr(sys, "_base_executable", "") or sys.executable
    for command in (
        [base, "-m", "venv", str(venv)],
        [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels],
        [str(venv / "bin" / "python"), "-m", "pip", "check"],
    ):
        done = _done(command, "the runtime's wheels cannot be installed")
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise FlashError(f"The runtime's wheels cannot be installed: {' '.join(last) or 'pip failed'}.")
    say("wheels", True, f"{len(wheels)} wheels installed")


def test_release(home: RobotHome, release: str, say: Say) -> None:
    """Test a release in the interpreter that runs it.

    Raises:
        GantryError: If a stage fails, with the reason.
    """
    python = python_of(home, release)
    if python == sys.executable:
        test_here(home, release, say)
        return
    command = [python, "-m", "gantry_deploy.flash.selftest", str(home.root), release]
    done = _done(command, "the self-test does not end")
    for line in done.stdout.splitlines():
        stage = parse_json_object(line, "the self-test's result", error=FlashError)
        say(str(stage["name"]), bool(stage["passed"]), str(stage["text"]))
        if not stage["passed"]:
            raise FlashError(f"{stage['name']}: {stage['text']}")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise FlashError(f"The self-test cannot run in the release's own runtime: {' '.join(last)}")


def test_here(home: RobotHome, release: str, say: Say) -> None:
    """The same in this interpreter: files of people, hashes, contract, golden data, latency, backend.

    Raises:
        GantryError: If a stage fails, with the reason.
    """
    from gantry_deploy.benchmarks.step import measure_step
    from gantry_deploy.evaluation.gate import Stage, check_static

    folder = home.releases / release
    config, run = home.config(), home.run_config(release)
    for path in sorted((folder / "config").glob("*.y*ml")):
        read_yaml(path)
    heard: list[Stage] = []
    bundle, runner = check_static(lambda: load_bundle(folder / "bundle"), heard.append)
    for stage in heard:
        say(stage.name, True, stage.text)
    contract = bundle.contract
    if contract.robot != config.robot:
        raise FlashError(f"The policy is for '{contract.robot}', and this robot is '{config.robot}'.")
    timing = measure_step(runner, robot_spec(contract.robot), STEPS, plan=True)["step"]
    allowed_s = config.health.step_share / contract.rate_hz
    text = f"a step takes {1e3 * timing['p50_s']:.2f} ms, p99 {1e3 * timing['p99_s']:.2f} ms; "
    text += f"allowed are {1e3 * allowed_s:.1f} ms in the median"
    if timing["p50_s"] > allowed_s:
        raise FlashError(f"Too slow: {text}.")
    say("latency", True, text)
    if run.backend:
        check_options(run.backend, dict(run.options))
        backend_factory(run.backend)
    say("middleware", True, _middleware(run.backend))


def _middleware(backend: str) -> str:
    """Words on what robots are reached by.

    Raises:
        RobotError: If the backend needs what is not here.
    """
    found = {name: importlib.util.find_spec(module) is not None for name, module in _MIDDLEWARE.items()}
    if backend == "ros" and not found["ROS 2"]:
        raise RobotError("The backend is 'ros', and ROS 2 (rclpy) cannot be imported; source its setup.bash first.")
    listed = ", ".join(f"{name} {'available' if there else 'not available'}" for name, there in found.items())
    return f"{listed}; backend {f'{backend!r} loads' if backend else 'is started by a command'}"


_MIDDLEWARE = {"ROS 2": "rclpy", "DDS": "cyclonedds"}


def _done(command: list[str], trouble: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FlashError(f"{trouble}: {error}.") from error


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("release")
    args = parser.parse_args()

    def say(name: str, passed: bool, text: str) -> None:
        print(json.dumps({"name": name, "passed": passed, "text": text}), flush=True)

    try:
        test_here(RobotHome(args.home), args.release, say)
    except GantryError as error:
        say("self-test", False, str(error))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
