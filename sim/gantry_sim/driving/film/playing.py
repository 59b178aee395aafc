"""Drivers in front of the camera: a bundle by the runtime's own runner, or a driver that learned nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.observations.signals import Signals
from gantry_deploy.observations.surroundings import Surroundings
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.state import GRAVITY_M_S2, RobotState
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.bench.drivers import Act, baseline
from gantry_sim.driving.cfg import RANDOM, RULES, SCAN, STEADY, CarTaskCfg
from gantry_sim.driving.evaluation import drive_episodes
from gantry_sim.driving.film.film import CHOICES, Shown, choose, show
from gantry_sim.driving.film.view import Look
from gantry_sim.driving.film.watched import Episode, WatchedEnv
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.registry import Task
from gantry_sim.training.run_files import EVALUATION_SEED

POLICY = "policy"
DRIVERS = {POLICY: "policy", "scripted": RULES, "scan": SCAN, "steady": STEADY, "random": RANDOM}
"""Word on the command line -> driver."""


@dataclass(frozen=True)
class PlayCfg:
    """Choice of the episode that is shown."""

    episode: str = "first"
    """A name of :data:`gantry_sim.driving.film.film.CHOICES`."""
    episodes: int = 16
    """Number of episodes to choose from; the first one is driven alone."""
    seed: int = EVALUATION_SEED
    """Of the episodes."""
    seconds: float | None = None
    """Longest film: from the beginning of the first episode, of others before their ends; None for whole episodes."""
    look: Look = field(default_factory=Look)
    """From where."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise GantryError(f"There are {self.episodes} episodes to choose from, expected at least 1.")
        if self.seconds is not None and not self.seconds > 0.0:
            raise GantryError(f"The film's length is {self.seconds} s, expected more than 0.")


class RunnerDriver:
    """A bundle's policy at the wheels of N cars, each by a runner of its own as on a robot.

    Runners are told what each car's sensors have told the training's own observations, one car at a time, and build the
    observation themselves.

    Args:
        bundle: A verified bundle.
        count: N.

    Raises:
        ContractError: If the policy does not fit the robot that its contract names.
        PolicyError: If network and contract do not fit.
    """

    def __init__(self, bundle: Bundle, count: int) -> None:
        spec = robot_spec(bundle.contract.robot)
        self.runners = [PolicyRunner(bundle, spec) for _ in range(count)]
        """One for each car."""
        self.observation = np.zeros((count, sum(t.size * t.history for t in bundle.contract.observations)), np.float32)
        """(N, obs), what the runners have built last."""

    def __call__(self, env: Any, _: Any) -> Tensor:
        """Actions (N, 2) in [-1, 1]; cars whose first episode is over stand still."""
        signals, actions = env.signals, np.zeros((env.num_envs, 2), np.float32)
        over = env.how_ended if isinstance(env, WatchedEnv) else [""] * env.num_envs
        for car, runner in enumerate(self.runners):
            if over[car]:
                continue
            if int(env.episode_length_buf[car]) == 0:
                runner.reset()
            around = _row_of(signals.surroundings, car)
            step = runner.step(state_of(signals, car), np.zeros(0), surroundings=around)
            self.observation[car], actions[car] = step.observation, step.action
        return torch.from_numpy(actions).to(env.device)


def state_of(signals: Signals, car: int) -> RobotState:
    """Robot state that a car would have reported, from the simulator's sensors of N cars.

    Args:
        signals: With times and with poses in the world.
        car: Which car.
    """
    pose, velocity = signals.pose_in_world, signals.lin_vel_base_in_base_m_s
    assert pose is not None
    assert velocity is not None
    assert signals.time_s is not None
    x, y, yaw = pose[car].double().tolist()
    joints = _numbers(signals.joint_pos_rad, car)
    return RobotState(
        stamp_s=float(signals.time_s[car]),
        joint_pos_rad=joints,
        joint_vel_rad_s=_numbers(signals.joint_vel_rad_s, car),
        joint_effort_nm=np.zeros(len(joints)),
        quat_base_to_world_wxyz=np.array([np.cos(0.5 * yaw), 0.0, 0.0, np.sin(0.5 * yaw)]),
        ang_vel_base_in_base_rad_s=_numbers(signals.ang_vel_base_in_base_rad_s, car),
        lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, GRAVITY_M_S2]),
        pos_base_in_world_m=np.array([x, y, 0.0]),
        lin_vel_base_in_base_m_s=_numbers(velocity, car),
    )


def _numbers(values: Tensor, car: int) -> np.ndarray:
    return values[car].double().cpu().numpy()


def _row_of(around: Surroundings, car: int) -> Surroundings:
    return Surroundings(**{name: values[car : car + 1].cpu().numpy() for name, values in around.given().items()})


@dataclass(frozen=True)
class Driven:
    """Episodes that were driven to their ends."""

    env: WatchedEnv
    """Environment of the episodes."""
    driver: str
    """Name of the driver, for people."""
    found: dict[str, np.ndarray]
    """Results of :func:`gantry_sim.driving.evaluation.drive_episodes` for them."""
    episodes: list[Episode]
    """Recorded episodes, each from its beginning to its end."""


def drive(
    task: Task,
    env_cfg: CarTaskCfg,
    driver: str,
    bundle: Bundle | None,
    *,
    episodes: int,
    seed: int = EVALUATION_SEED,
    on_progress: Callable[[float], None] = lambda _: None,
) -> Driven:
    """Drive episodes on held-out maps and write down what happens.

    Args:
        task: The task.
        env_cfg: Its configuration in training.
        driver: A name of :data:`DRIVERS`.
        bundle: The policy; only ``policy`` needs one.
        episodes: How many, side by side.
        seed: Of the episodes.
        on_progress: Called with the share of episodes that are over.

    Raises:
        GantryError: If that driver cannot drive there.
    """
    require_able(driver, env_cfg)
    with torch_threads(1):
        env = WatchedEnv(task.evaluation(env_cfg, num_envs=episodes), "cpu", seed)
        act = _driver(driver, bundle, env, seed)
        found = drive_episodes(env, act, on_progress)
        return Driven(env, _name(driver, bundle), found, env.episodes())


def shown_of(driven: Driven, title: str, cfg: PlayCfg) -> Shown:
    """The episode that is asked for, ready to be drawn.

    Raises:
        GantryError: If there is none such.
    """
    episode = choose(driven.episodes, cfg.episode)
    if cfg.seconds is not None:
        episode = episode.cut(cfg.seconds, end=cfg.episode != CHOICES[0])
    return show(driven.env, episode, title, driven.driver, cfg.look)


def able_drivers(cfg: CarTaskCfg) -> list[str]:
    """Words of :data:`DRIVERS` for those that learned nothing and can drive on a task."""
    return [word for word, name in DRIVERS.items() if word != POLICY and name in cfg.drivers]


def require_able(word: str, cfg: CarTaskCfg) -> None:
    """Refuse a driver that cannot drive on a task, before its roads are built.

    Raises:
        GantryError: With those that can.
    """
    if word != POLICY and word not in (words := able_drivers(cfg)):
        raise GantryError(f"Driver '{word}' cannot drive here; expected {POLICY} or one of {', '.join(words)}.")


def _driver(name: str, bundle: Bundle | None, env: WatchedEnv, seed: int) -> Act:
    if name != POLICY:
        act = baseline(DRIVERS[name], env, seed)
        assert act is not None
        return act
    if bundle is None:
        raise GantryError("A policy cannot drive without its bundle.")
    return RunnerDriver(bundle, env.num_envs)


def _name(driver: str, bundle: Bundle | None) -> str:
    if driver != POLICY or bundle is None:
        return f"driver {DRIVERS[driver]}" if driver == "scripted" else f"{DRIVERS[driver]}, learned nothing"
    provenance = bundle.contract.provenance
    return f"policy, {provenance.env_steps / 1e6:.2f} million decisions, seed {provenance.seed}"
