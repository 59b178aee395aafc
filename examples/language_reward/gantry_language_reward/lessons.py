"""Teaching the small scorer: pictures of attentive and of inattentive drivers, and ground truth.

A picture is bad if the car touches another user, would within a second if all went straight on, or is so close behind
another that it should hardly drive; it is clear if no user is near on the way. All between teach nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from gantry_hardware.errors import GantryError
from gantry_language_reward.cfg import BAD_GOAL, GOOD_GOAL, PICTURE
from gantry_language_reward.pictures import pictures
from gantry_language_reward.small import SmallScorer
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.drivers.baselines import constant_speed, rule_based
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.maps.projection import window
from gantry_sim.driving.reward import MultiplicativeReward, RewardCfg
from gantry_sim.driving.scenes.road_scene import AHEAD, BEHIND, RoadScene
from gantry_sim.driving.scenes.scene import boxes_at
from gantry_sim.driving.sensors.boxes import clearance, meets
from gantry_sim.driving.step_info import StepInfo
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg

BAD, GOOD = 0, 1
"""Classes of pictures, in the order of the goals."""


@dataclass(frozen=True)
class LessonCfg:
    """Settings of the pictures, and their labels."""

    env: DriveCfg = field(default_factory=lambda: DriveCfg(num_envs=64, map_count=16, traffic=TrafficCfg()))
    """Environment of the pictures; there must be traffic."""
    count: int = 1500
    """Pictures of each class."""
    each: int = 8
    """Most of each class in one look, so that they do not all show the same moment."""
    every: int = 3
    """Steps between two looks."""
    blind_share: float = 0.5
    """Share of cars that drive at one speed whatever is in the way."""
    blind_m_s: float = 8.0
    """That speed."""
    bad_s: float = 1.0
    """A collision so soon, if all went straight on, is bad,"""
    bad_gap_m: float = 4.0
    """and so is less than this to the user ahead."""
    clear_s: float = 3.0
    """On a clear road there is none so soon,"""
    clear_gap_m: float = 20.0
    """no user nearer ahead,"""
    clear_side_m: float = 0.7
    """and no user nearer at all."""


@dataclass(frozen=True)
class Lessons:
    """Pictures and what they are."""

    frames: Tensor
    """uint8 ``(N, 3, H, W)``."""
    label: Tensor
    """``(N,)`` int64, :data:`BAD` or :data:`GOOD`."""


def labels(env: DriveEnv, cfg: LessonCfg) -> Tensor:
    """Labels of N cars from the simulator's ground truth: ``(N,)`` int64, -1 for neither.

    Raises:
        GantryError: If there is no traffic.
    """
    scene = env.scene
    if not isinstance(scene, RoadScene) or scene.traffic is None:
        raise GantryError("Pictures of accidents are taken on roads with traffic; env.traffic is none.")
    boxes, others = boxes_at(env.cars.pose, scene.spec), scene.traffic.objects
    taken = others[..., 6] > 0.5
    many = others[..., [0, 1, 2, 4, 5]]
    velocity = others[..., 3:4] * torch.stack((torch.cos(others[..., 2]), torch.sin(others[..., 2])), dim=-1)
    yaw = boxes[:, 2]
    own = env.cars.speed_m_s[:, None] * torch.stack((torch.cos(yaw), torch.sin(yaw)), dim=-1)
    velocity = velocity - own[:, None]
    soon, later = (meets(boxes, many, velocity, time_s, taken)[1].any(dim=1) for time_s in (cfg.bad_s, cfg.clear_s))
    gap = scene.traffic.car.gap_m
    bad = soon | (gap < cfg.bad_gap_m)
    beside = clearance(boxes, many, taken).amin(dim=1)
    clear = ~later & (gap > cfg.clear_gap_m) & (beside > cfg.clear_side_m)
    return torch.where(bad, BAD, torch.where(clear, GOOD, -1))


class _Camera(MultiplicativeReward):
    """Takes pictures where rewards are reckoned: that is after all have moved, and before episodes begin anew."""

    def __init__(self, env: DriveEnv, cfg: LessonCfg, generator: torch.Generator) -> None:
        super().__init__(RewardCfg(), env.num_envs, env.dt_s, env.cfg.episode_s, str(env.device))
        self.env, self.lesson, self.generator = env, cfg, generator
        self.taken: tuple[list[Tensor], list[Tensor]] = ([], [])
        """Pictures of each class."""
        self.step = 0

    def __call__(self, step: StepInfo) -> tuple[Tensor, dict[str, Tensor]]:
        self.step += 1
        if self.step % self.lesson.every == 0:
            known = labels(self.env, self.lesson)
            for kind in (BAD, GOOD):
                rows = (known == kind).nonzero()[:, 0]
                rows = rows[torch.randperm(len(rows), generator=self.generator)[: self.lesson.each].to(rows.device)]
                if len(rows) and self.count(kind) < self.lesson.count:
                    self.taken[kind].append(pictures(step.look, rows, PICTURE).cpu())
        return super().__call__(step)

    def count(self, kind: int) -> int:
        """Pictures of a class so far."""
        return sum(len(part) for part in self.taken[kind])


def take_lessons(cfg: LessonCfg, seed: int, most_steps: int = 4000) -> Lessons:
    """Drive, and take as many pictures of each class as are asked for.

    Args:
        cfg: Where and what.
        seed: Of everything random.
        most_steps: After so many it is given up.

    Raises:
        GantryError: If there were too few of a class until then.
    """
    env = DriveEnv(cfg.env, seed=seed)
    camera = _Camera(env, cfg, torch.Generator().manual_seed(seed))
    env.reward = camera
    blind = torch.arange(env.num_envs) < round(cfg.blind_share * env.num_envs)
    with torch.inference_mode():
        for _ in range(most_steps):
            if min(camera.count(BAD), camera.count(GOOD)) >= cfg.count:
                break
            env.step(torch.where(blind[:, None], *_drivers(env, cfg)))
        else:
            raise GantryError(
                f"{most_steps} steps gave {camera.count(BAD)} bad and {camera.count(GOOD)} clear pictures, expected "
                f"{cfg.count} of each."
            )
    parts = [torch.cat(camera.taken[kind])[: cfg.count] for kind in (BAD, GOOD)]
    frames = torch.cat(parts).clone()
    return Lessons(frames, torch.arange(2).repeat_interleave(cfg.count))


def _drivers(env: DriveEnv, cfg: LessonCfg) -> tuple[Tensor, Tensor]:
    """Actions of drivers that do not look out, and of those that do."""
    scene: Any = env.scene
    spec = scene.spec
    ahead = window(scene.routes, scene.route, scene.place.index, behind=BEHIND, count=BEHIND + AHEAD)
    pose, speed = env.cars.pose, env.cars.speed_m_s
    return (
        constant_speed(pose, speed, ahead, spec, cfg.blind_m_s),
        rule_based(pose, speed, ahead, scene.traffic.car, spec),
    )


def teach(
    lessons: Lessons,
    *,
    epochs: int = 12,
    batch: int = 64,
    learning_rate: float = 2e-3,
    temperature: float = 0.1,
    seed: int = 1,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> SmallScorer:
    """A small scorer that knows the two goals of VLM-RL.

    Pictures are drawn to their sentence and away from the other one, by the cross entropy of cosines over
    ``temperature``. The margin is the median lead of the bad goal in bad pictures.

    Args:
        lessons: Pictures of both classes.
        epochs: Passes over them.
        batch: Pictures of a minibatch.
        learning_rate: Of Adam, at the start; it falls to nothing.
        temperature: See above.
        seed: Of weights and order.
        on_epoch: Called with the number of each pass, from 1, and its mean loss.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        scorer = SmallScorer((BAD_GOAL, GOOD_GOAL), PICTURE)
        order = [torch.randperm(len(lessons.label)) for _ in range(epochs)]
    adam = torch.optim.Adam(scorer.parameters(), lr=learning_rate)
    for epoch, rows in enumerate(order):
        for group in adam.param_groups:
            group["lr"] = learning_rate * (1.0 - epoch / epochs)
        total = 0.0
        for part in rows.split(batch):
            logits = scorer.cosines(lessons.frames[part]) / temperature
            loss = nn.functional.cross_entropy(logits, lessons.label[part])
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += float(loss.detach()) * len(part)
        on_epoch(epoch + 1, total / len(rows))
    scorer.eval().requires_grad_(False)
    bad = scorer(lessons.frames[lessons.label == BAD])
    scorer.margin = max(1e-3, float((bad[:, BAD] - bad[:, GOOD]).median()))
    return scorer


def area_under_curve(lead: Tensor, label: Tensor) -> float:
    """Share of pairs of a bad and a clear picture in which the bad one leads more to the bad goal; ties count half.

    Args:
        lead: ``(N,)``.
        label: ``(N,)``.
    """
    bad, good = lead[label == BAD], lead[label == GOOD]
    above = (bad[:, None] > good).double() + 0.5 * (bad[:, None] == good).double()
    return float(above.mean())


def other_maps(cfg: LessonCfg) -> LessonCfg:
    """The same on maps of the test split."""
    return replace(cfg, env=replace(cfg.env, map_split="test"))
