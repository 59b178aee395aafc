"""Compare ways to make a student of a weak teacher, at equal samples.

For each method and seed a training of its own, in a folder that is kept and continued after an interruption:

    python scripts/measure/distillation.py --task yam-tell-push --teacher runs/teacher --folder runs/rpd

The teacher is the run folder of a cloned policy (``gantry train TASK --preset bc --demos DEMOS``). Success while
learning is that of sampled actions over the newest episodes; at the end the deterministic policy is scored on held-out
ones. The table tells both, and the samples after which a method has reached what PPO alone reaches at its end. There is
no success while learning of ``co-rft``, which learns from rollouts of the teacher; together they are no longer than the
samples of the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Method:
    """A way to learn."""

    preset: str
    """Preset of the task."""
    changes: tuple[str, ...] = ()
    """Changes to it, as ``gantry train --set`` takes them."""
    needs: str = "teacher"
    """Option that names what it learns from: ``teacher``, ``base`` or empty."""
    offline: bool = False
    """Whether it learns from recorded rollouts of the teacher, and tries nothing."""


METHODS = {
    "ppo": Method("ppo", needs=""),
    "rpd": Method("rpd"),
    "rpd-cosine": Method("rpd", ("learner.guide.fade=cosine", "learner.guide.fade_iterations=60")),
    "rpd-l1": Method("rpd", ("learner.guide.action_loss=l1",)),
    "rpd-likelihood": Method("rpd", ("learner.guide.action_loss=likelihood", "learner.guide.action_weight=0.02")),
    "reverse-kl": Method("reverse-kl"),
    "dagger-ppo": Method("dagger-ppo"),
    "residual": Method("resfit", ("env.reward=dense",), needs="base"),
    "residual-small": Method(
        "resfit",
        (
            "learner.agent.actor.action_scale=0.1",
            "learner.agent.actor.explore_std=0.03",
            "learner.warmup_noise=0.03",
        ),
        needs="base",
    ),
    "rpd-plans": Method("rpd", ("learner.guide.plan_steps=8",)),
    "dagger-progress": Method("dagger-ppo", ("env.reward=progress", "learner.gamma=0.99", "learner.lam=0.95")),
    "co-rft": Method("co-rft", needs="base", offline=True),
}
"""Methods by name; the teacher of the residual methods is their frozen base, that of ``co-rft`` made the rollouts."""


def main() -> int:
    """Train what is missing, then print the table and draw the curves."""
    args = _arguments()
    rows = []
    for seed in args.seeds:
        for name in args.methods:
            rows.append({"method": name, "seed": seed, **_trained(args, name, seed)})
            print(f"{name} seed {seed}: {rows[-1]['success']:.3f}", flush=True)
    (args.folder / "rows.json").write_text(json.dumps(rows, indent=1))
    print("\n".join(table(rows)))
    draw(rows, args.folder / "curves.png")
    return 0


def _trained(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """Result of one training, made now or read from its folder."""
    method, run = METHODS[name], args.folder / f"{name}-{seed}"
    result = run / "result.json"
    if not result.is_file():
        command = [sys.executable, "-m", "gantry_deploy.cli.main", "train"]
        if (run / "config.json").is_file():
            command += ["--resume", str(run)]
        else:
            command += [args.task, "--preset", method.preset, "--seed", str(seed), "--run-dir", str(run)]
            command += ["--demos", str(rollouts(args, seed))] if method.offline else ["--steps", str(args.steps)]
            for change in (*method.changes, *args.set):
                command += ["--set", change]
            if method.needs:
                command += [f"--{method.needs}", str(args.teacher)]
        done = subprocess.run([*command, "--episodes", str(args.episodes), "--no-export"], check=False)
        if done.returncode:
            raise SystemExit(f"The training in {run} ended with {done.returncode}.")
        score = json.loads((run / "evaluation.json").read_text())
        result.write_text(json.dumps({"success": find(score, "success_rate")}))
    return {**json.loads(result.read_text()), "curve": curve(run)}


def rollouts(args: argparse.Namespace, seed: int) -> Path:
    """Dataset of as many episodes of the teacher as surely fit into the samples of the other methods.

    Raises:
        SystemExit: If they cannot be recorded.
    """
    from gantry_sim.training.run_folder import read_run

    env = read_run(args.teacher).preset.env
    episodes = max(1, int(args.steps / (env.episode_s * env.rate_hz)))
    folder = args.folder / f"rollouts-{seed}"
    command = [sys.executable, "-m", "gantry_deploy.cli.main", "collect", args.task, "--policy", str(args.teacher)]
    command += ["--episodes", str(episodes), "--seed", str(seed), "--envs", "64", "--output", str(folder)]
    if code := subprocess.run(command, check=False).returncode:
        raise SystemExit(f"Rollouts in {folder} ended with {code}.")
    return folder


def find(value: Any, name: str) -> float:
    """Mean of the first score of a name in nested data.

    Raises:
        KeyError: If there is none.
    """
    if isinstance(value, dict):
        if name in value:
            return float(value[name]["mean"])
        for item in value.values():
            try:
                return find(item, name)
            except KeyError:
                continue
    raise KeyError(name)


def curve(run: Path) -> list[tuple[int, float]]:
    """Samples and the share of successes among the newest episodes, of a run's metrics."""
    points = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "success_rate" in row and "env_steps" in row:
            points.append((int(row["env_steps"]), float(row["success_rate"])))
    return points


def reached(points: list[tuple[int, float]], share: float) -> int | None:
    """Samples after which a curve has first been at a share; None if it never was."""
    return next((steps for steps, success in points if success >= share), None)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Table of final successes, and of samples to reach PPO's."""
    ppo = [reached_share(row["curve"]) for row in rows if row["method"] == "ppo"]
    goal = sum(ppo) / len(ppo) if ppo else None
    lines = [f"PPO ends at {goal:.3f} while learning." if goal is not None else "PPO was not trained."]
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == name]
        ends = ", ".join(f"{row['success']:.3f}" for row in mine)
        steps = [reached(row["curve"], goal) for row in mine] if goal is not None else []
        said = ", ".join("never" if item is None else f"{item / 1e3:.0f} k" for item in steps)
        lines.append(f"{name:15} held-out {ends:24} to PPO's end: {said}")
    return lines


def reached_share(points: list[tuple[int, float]]) -> float:
    """Mean of the last tenth of a curve."""
    last = points[-max(1, len(points) // 10) :]
    return sum(success for _, success in last) / len(last)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the curves of all methods, one line per seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    names = list(dict.fromkeys(row["method"] for row in rows))
    for row in rows:
        steps, shares = zip(*row["curve"], strict=True) if row["curve"] else ((), ())
        first = row is next(other for other in rows if other["method"] == row["method"])
        colour = f"C{names.index(row['method'])}"
        axes.plot(steps, shares, color=colour, alpha=0.8, label=row["method"] if first else None)
    axes.set(xlabel="control steps", ylabel="success of the newest episodes", ylim=(0, 1))
    axes.legend()
    figure.savefig(path, dpi=120)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="yam-tell-push")
    parser.add_argument("--teacher", type=Path, required=True, help="run folder of the teacher, a cloned policy")
    parser.add_argument("--folder", type=Path, required=True, help="where the runs lie")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=600_000, help="samples of every method")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="changes to every method's preset")
    parser.add_argument("--episodes", type=int, default=200, help="held-out episodes at the end")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    raise SystemExit(main())
