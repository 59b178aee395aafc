"""Environment steps per second: our CPU backend against mjlab as it ships (MuJoCo Warp), same task, same machine."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg

from gantry_sim.benchmarks.rates import machine, spread
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.process.torch_threads import torch_threads

PARTS = {
    "physics": ("sim", "step"),
    "forward": ("sim", "forward"),
    "sensors": ("sim", "sense"),
    "contact sensors": ("scene", "update"),
    "rewards": ("reward_manager", "compute"),
    "observations": ("observation_manager", "compute"),
    "commands": ("command_manager", "compute"),
    "terminations": ("termination_manager", "compute"),
    "events": ("event_manager", "apply"),
    "actions": ("action_manager", "apply_action"),
    "resets": ("", "_reset_idx"),
}
"""Parts of a control step that are timed: the attribute of the environment ("" for itself), and the method. What one
part calls of another (a reset runs events) counts for the inner one."""


def bench_sim(
    num_envs_list: Sequence[int] = (64, 256),
    seconds: float = 5.0,
    repeats: int = 3,
    *,
    cfg_factory: Callable[[], ManagerBasedRlEnvCfg] = unitree_go1_flat_env_cfg,
    with_warp: bool = True,
    seed: int = 1,
) -> dict[str, Any]:
    """Measure whole environment steps on both backends in turn.

    Args:
        num_envs_list: Numbers of environments to measure at.
        seconds: Least duration of one measurement; a slow backend takes at least three control steps.
        repeats: Measurements per backend and size; backends alternate, so that both meet the machine's other load.
        cfg_factory: Makes a fresh task configuration; mjlab's unmodified Velocity-Flat-Go1 by default.
        with_warp: Whether to measure mjlab as it ships; minutes at large sizes.
        seed: Seed of the environments and the actions.

    Returns:
        ``machine``, and ``results``, one entry per size: ``env_steps_per_s`` (min, median and max per backend),
        ``ratio`` (of each pair of neighbouring measurements, and their min, median and max) and ``breakdown_ms``
        (our backend's milliseconds per control step by part, from a separate run).
    """
    if repeats < 1 or seconds <= 0 or not num_envs_list or min(num_envs_list) < 1:
        raise ValueError(f"Nothing to measure: sizes {list(num_envs_list)}, {seconds} s, {repeats} repeats.")
    with torch_threads(1), contextlib.redirect_stdout(sys.stderr):  # Warp tells stdout which kernels it loads
        results = [_bench_size(num_envs, seconds, repeats, cfg_factory, with_warp, seed) for num_envs in num_envs_list]
    return {
        "machine": machine() | {name: version(name) for name in ("mjlab", "mujoco", "mujoco-warp", "torch")},
        "seconds": seconds,
        "repeats": repeats,
        "results": results,
    }


def format_bench(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [", ".join(f"{key} {value}" for key, value in result["machine"].items())]
    for entry in result["results"]:
        lines.append(f"{entry['num_envs']} environments")
        for backend, figures in entry["env_steps_per_s"].items():
            values = " / ".join(f"{figures[key]:,.0f}" for key in ("min", "median", "max"))
            lines.append(f"  {backend:9s} {values} env-steps/s (min / median / max)")
        if "ratio" in entry:
            values = " / ".join(f"{entry['ratio'][key]:.1f}" for key in ("min", "median", "max"))
            lines.append(f"  ratio     {values}")
        parts = ", ".join(f"{part} {value:.2f}" for part, value in entry["breakdown_ms"].items())
        lines.append(f"  ms per control step: {parts}")
    return "\n".join(lines)


def _bench_size(
    num_envs: int,
    seconds: float,
    repeats: int,
    cfg_factory: Callable[[], ManagerBasedRlEnvCfg],
    with_warp: bool,
    seed: int,
) -> dict[str, Any]:
    builders: dict[str, Callable[[ManagerBasedRlEnvCfg], ManagerBasedRlEnv]] = {
        "gantry": lambda cfg: GantryEnv(cfg, "cpu")
    }
    if with_warp:
        builders["mjlab"] = lambda cfg: ManagerBasedRlEnv(cfg, "cpu")
    envs = {name: _build(build, cfg_factory(), num_envs, seed) for name, build in builders.items()}
    rates: dict[str, list[float]] = {name: [] for name in envs}
    for _ in range(repeats):
        for name, env in envs.items():
            rates[name].append(_rate(env, seconds, seed))
    entry: dict[str, Any] = {
        "num_envs": num_envs,
        "env_steps_per_s": {name: {"all": values, **spread(values)} for name, values in rates.items()},
    }
    if with_warp:
        ratios = [ours / theirs for ours, theirs in zip(rates["gantry"], rates["mjlab"], strict=True)]
        entry["ratio"] = {"all": ratios, **spread(ratios)}
    entry["breakdown_ms"] = _breakdown(envs["gantry"], seconds, seed)
    return entry


def _build(
    build: Callable[[ManagerBasedRlEnvCfg], ManagerBasedRlEnv], cfg: ManagerBasedRlEnvCfg, num_envs: int, seed: int
) -> ManagerBasedRlEnv:
    cfg.scene.num_envs = num_envs
    cfg.seed = seed
    with contextlib.redirect_stdout(io.StringIO()):  # mjlab describes every manager
        env = build(cfg)
    env.reset()
    _rate(env, 0.0, seed)  # compiles, binds and fills caches
    return env


def _rate(env: ManagerBasedRlEnv, seconds: float, seed: int) -> float:
    """Environment steps per second under random actions; all resets, events and sensors included."""
    generator = torch.Generator().manual_seed(seed)
    size = (env.num_envs, sum(env.action_manager.action_term_dim))
    actions = [0.3 * torch.randn(size, generator=generator) for _ in range(8)]
    steps = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or steps < 3:
        env.step(actions[steps % len(actions)])
        steps += 1
    return steps * env.num_envs / elapsed


def _breakdown(env: ManagerBasedRlEnv, seconds: float, seed: int) -> dict[str, float]:
    clock = _PartClock()
    with contextlib.ExitStack() as stack:
        for part, (owner, method) in PARTS.items():
            stack.enter_context(clock.timing(getattr(env, owner) if owner else env, method, part))
        before = env.common_step_counter
        rate = _rate(env, seconds, seed)
        steps = env.common_step_counter - before
    parts = {part: 1e3 * clock.spent_s[part] / steps for part in PARTS}
    whole = 1e3 * env.num_envs / rate
    return {**parts, "other": max(whole - sum(parts.values()), 0.0), "all": whole}


class _PartClock:
    """Time spent in each part, without that of the parts it calls."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = defaultdict(float)
        self._inner_s = [0.0]

    @contextlib.contextmanager
    def timing(self, owner: Any, method: str, part: str) -> Iterator[None]:
        original = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner_s.append(0.0)
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                duration = time.perf_counter() - start
                self.spent_s[part] += duration - self._inner_s.pop()
                self._inner_s[-1] += duration

        setattr(owner, method, timed)
        try:
            yield
        finally:
            delattr(owner, method)  # the class's own shows again
