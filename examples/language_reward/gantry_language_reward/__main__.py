"""Teaches the small scorer anew: ``python -m gantry_language_reward FILE``, some minutes on one core."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from gantry_language_reward.lessons import BAD, GOOD, LessonCfg, area_under_curve, other_maps, take_lessons, teach


def main() -> None:
    """Take pictures, teach, say how well held-out pictures are told apart, and write the scorer."""
    parser = argparse.ArgumentParser(prog="python -m gantry_language_reward", description=main.__doc__)
    parser.add_argument("file", type=Path, help="where the scorer goes, as safetensors")
    parser.add_argument("--count", type=int, default=2000, help="pictures of each class")
    parser.add_argument("--seed", type=int, default=1, help="of everything random")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = LessonCfg(count=args.count)
    lessons = take_lessons(cfg, args.seed)
    print(f"{len(lessons.label)} pictures")
    scorer = teach(lessons, seed=args.seed, on_epoch=lambda epoch, loss: print(f"pass {epoch}: loss {loss:.3f}"))
    held = take_lessons(replace(other_maps(cfg), count=max(1, args.count // 4)), args.seed + 1)
    found = scorer(held.frames)
    area = area_under_curve(found[:, BAD] - found[:, GOOD], held.label)
    print(
        f"area under the curve on {len(held.label)} pictures of held-out maps: {area:.3f}; margin {scorer.margin:.3f}"
    )
    scorer.save(args.file)


if __name__ == "__main__":
    main()
