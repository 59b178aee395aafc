"""Coverage of the intervals of ``gantry identify`` on simulated robots with known dynamics.

python scripts/measure/identification.py --sets 20 --output identification.jsonl

Draws dynamics at random, records a hanging and a walking robot with them, identifies both, and prints for every
parameter the root mean square error, the mean width of the 95 % interval, and how often it held the truth. Finished
sets are kept in the output file, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_hardware.model.dynamics import Estimate, RobotDynamics
from gantry_hardware.robots import robot_spec
from gantry_sim.identification.excitation import ExcitationCfg
from gantry_sim.identification.findings import Findings
from gantry_sim.identification.legs import HANGING, WALKING, IdentifyCfg, add_walking, identify
from gantry_sim.identification.simulated import ReadingNoise, hanging_recording, walking_recording

JOINT_RANGES = {
    "armature_kg_m2": (0.005, 0.03),
    "viscous_friction_nm_s_rad": (0.0, 0.5),
    "coulomb_friction_nm": (0.0, 1.0),
    "stiffness_share": (0.85, 1.15),
    "damping_share": (0.85, 1.15),
    "encoder_offset_rad": (-0.03, 0.03),
}
WHOLE_RANGES = {
    "command_delay_s": (0.0, 0.02),
    "imu_delay_s": (0.0, 0.02),
    "imu_roll_rad": (-0.03, 0.03),
    "imu_pitch_rad": (-0.03, 0.03),
}
TIMESTEP_S = 0.002
"""Simulated robots round delays to their physics steps; the rounded one is the truth."""


def draw(seed: int) -> RobotDynamics:
    """Dynamics of a Go2 from the ranges above."""
    spec, rng = robot_spec("go2"), np.random.default_rng(seed)
    joints = {
        joint: {name: Estimate(float(rng.uniform(*bounds))) for name, bounds in JOINT_RANGES.items()}
        for joint in spec.joint_names
    }
    whole = {}
    for name, bounds in WHOLE_RANGES.items():
        value = float(rng.uniform(*bounds))
        whole[name] = Estimate(round(value / TIMESTEP_S) * TIMESTEP_S if name.endswith("_s") else value)
    return RobotDynamics("go2", joints, whole)


def compare(truth: RobotDynamics, found: Findings, label: str) -> list[dict[str, Any]]:
    """Truth and estimate of every parameter that was identified."""
    rows = []
    tables = [(found.whole, truth.whole)] + [(found.joints.get(j, {}), truth.joints[j]) for j in truth.joints]
    for estimates, true in tables:
        for name, estimate in estimates.items():
            if name in true:
                rows.append(
                    {
                        "parameter": f"{label} {name}",
                        "true": true[name].value,
                        "value": estimate.value,
                        "low": estimate.low,
                        "high": estimate.high,
                    }
                )
    return rows


def one_set(seed: int, seconds: float) -> dict[str, Any]:
    """Record and identify one set: hanging alone, walking alone, and both together for the IMU."""
    spec, truth, noise = robot_spec("go2"), draw(seed), ReadingNoise()
    hanging = hanging_recording(spec, truth, ExcitationCfg(seconds=seconds, seed=seed), noise, seed)
    bundle = load_bundle(find_bundle("pretrained:go2-walk"))
    walking = walking_recording(spec, truth, bundle, seconds, noise, seed)
    begin_s = time.perf_counter()
    together = identify(spec, [hanging], IdentifyCfg(HANGING, level_base=True))
    hanging_s = time.perf_counter() - begin_s
    # As if both recordings had been given at once, with the mounting by the feet.
    combined = Findings(spec, joints={name: dict(table) for name, table in together.joints.items()})
    begin_s = time.perf_counter()
    alone = identify(spec, [walking], IdentifyCfg(WALKING))
    walking_s = time.perf_counter() - begin_s
    add_walking(combined, walking, IdentifyCfg(WALKING))
    imu = Findings(spec, whole={k: v for k, v in combined.whole.items() if k.startswith("imu")})
    motors = Findings(
        spec, joints=alone.joints, whole={k: v for k, v in alone.whole.items() if k.startswith("command")}
    )
    rows = compare(truth, together, "hanging") + compare(truth, motors, "walking") + compare(truth, imu, "both")
    return {"seed": seed, "rows": rows, "hanging_s": hanging_s, "walking_s": walking_s}


def table(sets: list[dict[str, Any]]) -> str:
    """Lines of the table of all sets."""
    rows = [row for item in sets for row in item["rows"]]
    lines = [f"{'parameter':<36}{'count':>6}{'rmse':>11}{'width':>11}{'coverage':>10}"]
    for name in [*dict.fromkeys(row["parameter"] for row in rows), ""]:
        some = [row for row in rows if name in ("", row["parameter"])]
        error = np.array([row["value"] - row["true"] for row in some])
        width = np.array([row["high"] - row["low"] for row in some])
        held = np.mean([row["low"] - 1e-9 <= row["true"] <= row["high"] + 1e-9 for row in some])
        numbers = f"{np.sqrt(np.mean(error**2)):>11.3g}{width.mean():>11.3g}" if name else " " * 22
        lines.append(f"{name or 'all':<36}{len(some):>6}{numbers}{100.0 * held:>9.1f}%")
    times = [np.mean([item[name] for item in sets]) for name in ("hanging_s", "walking_s")]
    return "\n".join(
        [*lines, f"{len(sets)} sets; mean time of a fit: hanging {times[0]:.0f} s, walking {times[1]:.0f} s"]
    )


def main() -> None:
    """Run the sets that are missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=20, help="number of random robots")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each recording")
    parser.add_argument("--output", type=Path, default=Path("identification.jsonl"), help="finished sets")
    args = parser.parse_args()
    sets = [json.loads(line) for line in args.output.read_text().splitlines()] if args.output.exists() else []
    done = {item["seed"] for item in sets}
    for seed in range(args.sets):
        if seed in done:
            continue
        begin_s = time.perf_counter()
        sets.append(one_set(seed, args.seconds))
        with args.output.open("a") as stream:
            stream.write(json.dumps(sets[-1]) + "\n")
        print(f"set {seed} after {time.perf_counter() - begin_s:.0f} s\n{table(sets)}", flush=True)
    print(table(sets))


if __name__ == "__main__":
    main()
