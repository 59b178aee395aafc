"""Goals reached by kind of terrain and level, of a policy and of zero actions on the same episodes.

python scripts/measure/tasks/goal_success.py RUN [--episodes 64] [--levels 0,1,2] [--seed 20007] [--zeros] [--json FILE]

RUN is a run folder or a bundle of a goal task, or the name of a preset, of which zero actions alone are measured:
`ame2-go2:joints`. Kinds of terrain are those of its training; episodes are per level, spread evenly over the kinds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from gantry_deploy.bundle.locate import named_path
from gantry_sim.tasks.goal.evaluation import walk_to_goals
from gantry_sim.tasks.registry import MakePolicy, Policy, Task, find_task, from_flat
from gantry_sim.training.policies import open_source


def zeros(task: Task, env_cfg: Any) -> Policy:
    """The policy that always asks for nothing."""
    size = task.contract(env_cfg).action_size
    return lambda obs: torch.zeros(len(obs), size, device=obs.device)


def scores_by_level(
    task: Task, env_cfg: Any, make_policy: MakePolicy, levels: list[int], episodes: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Scores of each level, with those of each kind under ``kind``."""
    cfg = task.evaluation(env_cfg, num_envs=episodes)
    return {str(level): walk_to_goals(task, cfg, make_policy, "cpu", seed, levels=(level, level)) for level in levels}


def show(title: str, found: dict[str, dict[str, Any]]) -> None:
    """Print successes of trials, a row for each kind."""
    print(title)
    print(f"  {'level':<20}" + "".join(f"{level:>10}" for level in found) + f"{'all':>10}")
    kinds = next(iter(found.values()))["kind"]
    rows = {kind: [scores["kind"][kind] for scores in found.values()] for kind in kinds}
    for kind, scores in {**rows, "all": list(found.values())}.items():
        counts = [(round(score["success_rate"]["mean"] * score["episodes"]), score["episodes"]) for score in scores]
        total = tuple(sum(column) for column in zip(*counts, strict=True))
        print(f"  {kind:<20}" + "".join(f"{f'{good}/{all_}':>10}" for good, all_ in [*counts, total]), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run folder, bundle, or TASK:PRESET")
    parser.add_argument("--episodes", type=int, default=64, help="episodes of each level")
    parser.add_argument("--levels", default="0,1,2", help="levels of terrain, counted from 0")
    parser.add_argument("--seed", type=int, default=20007)
    parser.add_argument("--zeros", action="store_true", help="measure zero actions as well")
    parser.add_argument("--json", type=Path, help="write all scores to this file")
    args = parser.parse_args()
    levels = [int(level) for level in args.levels.split(",")]
    policies: dict[str, MakePolicy] = {}
    if (name := args.run.partition(":"))[1] and not Path(args.run).exists() and name[0] != "pretrained":
        task = find_task(name[0])
        env_cfg = task.preset(name[2]).env
    else:
        source = open_source(named_path(args.run))
        task, env_cfg = source.task, source.env_cfg
        policies["policy"] = source.make_policy
    if args.zeros or not policies:
        policies["zero actions"] = from_flat(zeros(task, env_cfg))
    found = {}
    for title, make_policy in policies.items():
        found[title] = scores_by_level(task, env_cfg, make_policy, levels, args.episodes, args.seed)
        show(title, found[title])
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
