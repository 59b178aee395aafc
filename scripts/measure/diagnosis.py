"""Measure how many seeded faults ``gantry audit`` and ``gantry doctor`` name, and false alarms on sound recordings.

Every fault is run in closed loop: the packaged Go2 walks, or falls, in MuJoCo with it, and the recording is judged.

    python scripts/measure/diagnosis.py --seed 1 --json faults.json
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from diagnosis_faults import Fault, reading_faults, runtime_faults

from gantry_deploy.bundle.bundle import Bundle, load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.control.safety_config import safety_config
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.diagnosis.audit import audit
from gantry_deploy.diagnosis.doctor import examine
from gantry_deploy.diagnosis.findings import Diagnosis
from gantry_deploy.diagnosis.state_log import log_of_recording
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import SafetyError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.reader import read_recording
from gantry_deploy.recording.recorder import Recorder
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.robots import robot_spec

WALK = "pretrained:go2-walk"
SECONDS = 8.0


class FaultyRobot:
    """A robot whose readings are changed."""

    def __init__(self, robot: Any, change: Callable[[Any], Any]) -> None:
        self._robot, self._change = robot, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._robot, name)

    def read(self) -> Any:
        """The newest state, changed."""
        return self._change(self._robot.read())


def record(bundle: Bundle, path: Path, fault: Fault | None, seed: int, options: dict[str, Any]) -> None:
    """Walk with a fault, or without, and record it; it may well fall."""
    contract, spec = bundle.contract, robot_spec(bundle.contract.robot)
    runner = PolicyRunner(bundle, spec)
    if fault is not None and fault.change_runner is not None:
        fault.change_runner(runner)
    kind = embodiment_of(contract)
    chosen = {**kind.backend_options(contract, kind.simulated_backend), **options, **(fault.options if fault else {})}
    robot = make_backend(kind.simulated_backend, spec, seed=seed, **chosen)
    if fault is not None and fault.change_reading is not None:
        robot = FaultyRobot(robot, fault.change_reading)
    rng = np.random.default_rng(seed)
    speed, turn, side = rng.uniform(0.3, 0.7), rng.uniform(-0.6, 0.6), rng.uniform(-0.2, 0.2)

    def command(time_s: float) -> np.ndarray:
        if len(contract.command.names) != 3:
            return np.zeros(len(contract.command.names))
        return np.array([speed, side * math.sin(time_s), turn * math.cos(0.7 * time_s)])

    config = safety_config({"state_timeout_s": 0.3})
    around = kind.surroundings_source(contract, robot)
    with Recorder(path, contract, spec, lossless=True) as recorder:
        robot.connect()
        controller = Controller(robot, runner, SafetyMachine(spec, config), recorder, surroundings=around)
        session = WalkSession(controller, None, SECONDS, say=lambda _: None)
        try:
            run_with(controller, session, command)
        except SafetyError:  # A runtime that sees through the fault, and refuses to start.
            controller.run(2.0)
    robot.close()


def run_with(controller: Controller, session: WalkSession, command: Callable[[float], np.ndarray]) -> None:
    """Run a session whose command changes with time."""
    plain = controller.tick

    def tick() -> Any:
        now_s = controller.robot.now_s()
        controller.set_command(command(now_s), now_s)
        return plain()

    controller.tick = tick  # type: ignore[method-assign]
    session.run()


def named_rightly(fault: Fault, found: Diagnosis, count: int) -> bool:
    """Whether every quantity is named with the right kind, and exactly the right joints."""
    for subject in fault.subjects:
        matching = [f for f in found.findings if f.kind.value == fault.kind and f.subject == subject]
        if not matching:
            return False
        names = set(matching[0].names)
        if fault.names and names != set(fault.names) and not (len(fault.names) == count and len(names) >= count - 2):
            return False
    return True


def judge(path: Path, bundle: Bundle, *, by_audit: bool) -> Diagnosis:
    """The audit's or the doctor's findings; an operator says that the robot was upright."""
    recording = read_recording(path)
    spec = robot_spec(bundle.contract.robot)
    return audit(recording, bundle) if by_audit else examine(log_of_recording(recording, spec), upright=True)


def main() -> None:
    """Run all faults and the sound recordings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    bundle = load_bundle(find_bundle(WALK))
    spec = robot_spec(bundle.contract.robot)
    rng = np.random.default_rng(args.seed)
    faults = runtime_faults(rng, spec.joint_names, spec.array("default_rad")) + reading_faults(rng, spec.joint_names)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.mcap"
        for number, fault in enumerate(faults):
            if args.only not in fault.name:
                continue
            path.unlink(missing_ok=True)
            record(bundle, path, fault, args.seed * 100 + number, {})
            found = judge(path, bundle, by_audit=fault.by_audit)
            right = named_rightly(fault, found, spec.num_joints)
            others = [f for f in found.findings if f.kind.value != fault.kind or f.subject not in fault.subjects]
            tool = "audit" if fault.by_audit else "doctor"
            print(f"{'named ' if right else 'MISSED'} {tool:<7}{fault.name}")
            for finding in found.findings:
                mark = " " if finding not in others else "+"
                print(f"      {mark} {finding.kind.value}: {finding.subject}: {finding.text}")
            rows.append({"fault": fault.name, "tool": tool, "named": right, "others": len(others)})
        alarms = [] if args.only else sound(path, args.seed)
    named = sum(row["named"] for row in rows)
    print(f"{named} of {len(rows)} faults named; {sum(row['others'] > 0 for row in rows)} with further findings")
    print(f"{sum(bool(alarm['findings']) for alarm in alarms)} of {len(alarms)} sound recordings with a false alarm")
    if args.json:
        args.json.write_text(json.dumps({"seed": args.seed, "faults": rows, "sound": alarms}, indent=1))


def sound(path: Path, seed: int) -> list[dict[str, Any]]:
    """Ten recordings without a fault: seeds, sensor noise, delays, three robots."""
    cases: list[tuple[str, dict[str, Any]]] = [
        *[(WALK, {"noise": noise}) for noise in (0.0, 0.0, 0.5, 1.0, 1.0)],
        (WALK, {"noise": 1.0, "friction": 0.5}),
        (WALK, {"delay_s": 0.01}),
        (WALK, {"noise": 1.0, "added_mass_kg": 2.0}),
        ("pretrained:yam-pick-place", {}),
        ("pretrained:drive-race", {}),
    ]
    alarms = []
    for number, (name, options) in enumerate(cases):
        bundle = load_bundle(find_bundle(name))
        path.unlink(missing_ok=True)
        record(bundle, path, None, seed * 1000 + number, options)
        found = [f for by_audit in (True, False) for f in judge(path, bundle, by_audit=by_audit).findings]
        print(f"sound {name} {options}: {len(found)} findings")
        for finding in found:
            print(f"      ! {finding.kind.value}: {finding.subject}: {finding.text}")
        alarms.append({"bundle": name, "options": options, "findings": [f.text for f in found]})
    return alarms


if __name__ == "__main__":
    main()
