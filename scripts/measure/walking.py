"""Walking policies side by side on machines that they were or were not trained for, in the training's own simulator.

python scripts/measure/walking.py BUNDLE [BUNDLE ...] [--episodes 200] [--seed 20007] [--only late,pushed]

Every condition changes one range of the configuration of the task's ``cpu`` preset without differences; ``wide`` draws
all of them. Falls are those of all episodes, errors those before a fall.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantry_deploy.bundle.locate import named_path
from gantry_sim.tasks.locomotion.evaluation import evaluate_velocity
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg
from gantry_sim.tasks.locomotion.velocity_cfg import VelocityCfg
from gantry_sim.training.policies import open_source


def conditions(home: VelocityCfg) -> dict[str, VelocityCfg]:
    """Configurations by name."""
    home = replace(home, machine=MachineCfg(), push_m_s=0.0, added_mass_kg=(0.0, 0.0))

    def machine(**ranges: Any) -> VelocityCfg:
        return replace(home, machine=MachineCfg(**ranges))

    wide = replace(home, machine=MachineCfg.wide(), added_mass_kg=(-1.0, 3.0))
    return {
        "home": home,
        "damped: 2 N m s/rad": machine(viscous_friction_nm_s_rad=(2.0, 2.0)),
        "identified: 0.1 to 1.4 N m, 0.1 to 0.3 N m s/rad": machine(
            coulomb_friction_nm=(0.1, 1.4), viscous_friction_nm_s_rad=(0.1, 0.3)
        ),
        "late: 20 ms": machine(command_delay_s=(0.02, 0.02)),
        "weak: strength 0.85": machine(strength_share=(0.85, 0.85)),
        "gains 0.85 to 1.15": machine(stiffness_share=(0.85, 1.15), damping_share=(0.85, 1.15)),
        "payload +3 kg": replace(home, added_mass_kg=(3.0, 3.0)),
        "misaligned: encoders 0.02, IMU 0.03 rad": machine(
            encoder_offset_rad=(-0.02, 0.02), imu_tilt_rad=(-0.03, 0.03)
        ),
        "pushed: 1 m/s": replace(home, push_m_s=1.0),
        "pushed: 1 m/s, 0 to 20 ms late": replace(machine(command_delay_s=(0.0, 0.02)), push_m_s=1.0),
        "wide": wide,
        "wide, pushed": replace(wide, push_m_s=1.0),
    }


def scores_of(path: str, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Scores of one bundle or run under every condition."""
    source = open_source(named_path(path))
    found = {}
    for name, cfg in conditions(source.env_cfg).items():
        if args.only and not any(part in name for part in args.only.split(",")):
            continue
        scores = evaluate_velocity(
            source.task,
            cfg,
            source.make_policy,
            episodes=args.episodes,
            device="cpu",
            seed=args.seed,
            full_model=False,
            on_progress=lambda done: None,
        )
        found[name] = scores.get("pushed", scores) | {"standing": scores["standing"]}
        line = found[name]
        errors = (
            f"{line['lin_vel_error_m_s']['mean']:.3f} m/s  {line['yaw_rate_error_rad_s']['mean']:.3f} rad/s  falls "
            f"{line['fall_rate']['mean']:.3f} [{line['fall_rate']['low']:.3f}, {line['fall_rate']['high']:.3f}]"
        )
        power, rate, jitter = (line["motion"][key]["mean"] for key in ("power_w", "action_rate", "yaw_jitter_rad_s"))
        still = line["standing"]["motion"]["yaw_jitter_rad_s"]["mean"]
        smooth = f"{power:.0f} W  action rate {rate:.3f}  yaw jitter {jitter:.3f}, standing {still:.3f} rad/s"
        print(f"{name:<50} {errors}  {smooth}", flush=True)
    return found


def main() -> None:
    """Print a table of each bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", nargs="+")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20_007)
    parser.add_argument("--only", default="", help="parts of the names of conditions, separated by commas")
    parser.add_argument("--json", type=Path, help="file for all scores")
    args = parser.parse_args()
    results = {}
    for path in args.bundle:
        print(f"{path}, {args.episodes} episodes, seed {args.seed}")
        results[path] = scores_of(path, args)
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
