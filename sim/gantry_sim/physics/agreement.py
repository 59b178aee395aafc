"""Agreement of our CPU backend with MuJoCo Warp, mjlab's own backend, on the same task and the same seeds.

MuJoCo C computes in float64 and MuJoCo Warp in float32, so they part slowly; where a contact is made or lost a step
earlier, fast. The tables therefore start from identical states and look at growing horizons, at the worst environment
and at the median one. Contacts with height fields differ by design (MuJoCo Warp makes one contact where MuJoCo C makes
several), so environments that stand on one are kept apart.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.sensor import RayCastSensor
from mjlab.tasks.velocity.config.g1.env_cfgs import unitree_g1_flat_env_cfg, unitree_g1_rough_env_cfg
from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg, unitree_go1_rough_env_cfg

from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.physics.simulation import WARP, default_simulation

DERIVED_FIELDS = ("xpos", "xquat", "cvel", "subtree_com", "actuator_force", "qacc", "sensordata")
"""Fields that are compared after ``forward`` from identical states."""
CONSTANT_FIELDS = ("body_subtreemass", "dof_invweight0", "body_invweight0", "actuator_acc0")
"""Fields that ``set_const`` derives from randomised masses, compared besides the randomised fields themselves."""
HORIZONS = (1, 4, 20, 100)
"""Substeps of the open-loop comparisons."""
CONTROL_STEPS = (1, 5, 20)
"""Control steps at which whole ``env.step`` results are compared."""

_STATE = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "qacc_warmstart", "time")


def with_small_terrain(make: Callable[[], ManagerBasedRlEnvCfg]) -> Callable[[], ManagerBasedRlEnvCfg]:
    """A task on two rows of each kind of terrain, which keeps MuJoCo Warp usable on a CPU."""

    def make_small() -> ManagerBasedRlEnvCfg:
        cfg = make()
        terrain = cfg.scene.terrain
        if terrain is not None and terrain.terrain_generator is not None:
            terrain.terrain_generator = replace(terrain.terrain_generator, num_rows=2, border_width=4.0, seed=0)
        return cfg

    return make_small


AGREEMENT_TASKS: dict[str, Callable[[], ManagerBasedRlEnvCfg]] = {
    "go1-flat": unitree_go1_flat_env_cfg,
    "g1-flat": unitree_g1_flat_env_cfg,
    "go1-rough": with_small_terrain(unitree_go1_rough_env_cfg),
    "g1-rough": with_small_terrain(unitree_g1_rough_env_cfg),
}
"""mjlab's velocity tasks, otherwise as they are."""


def measure_agreement(
    cfg_factory: Callable[[], ManagerBasedRlEnvCfg], num_envs: int = 16, seed: int = 1, device: str = "cpu"
) -> dict[str, dict[str, float]]:
    """Compare both backends on one task.

    Args:
        cfg_factory: Makes a fresh task configuration at each call.
        num_envs: Number of environments.
        seed: Seed of both backends.
        device: Where MuJoCo Warp runs, ``cpu`` or a CUDA device; MuJoCo C runs on the CPU.

    Returns:
        Tables ``model``, ``reset``, ``step`` (whole control steps), ``forward``, ``open_loop``, ``rays``, ``limits``,
        the first three on the CPU alone, since generators of a GPU draw other numbers from a seed,
        and ``height_fields`` if some environments stand on one; those are left out of the tables before. Values
        are the largest absolute differences in SI units, unless the name ends in ``median`` (over environments, of the
        largest in each), ``relative`` (to the largest value of the field) or says a count or a share.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))  # mjlab describes every manager
        ours = _build(cfg_factory(), default_simulation("cpu"), num_envs, seed, "cpu")
        theirs = _build(cfg_factory(), WARP, num_envs, seed, device)
        on_field = _on_height_field(ours)
        table: dict[str, dict[str, float]] = {}
        if device == "cpu":
            table = {"model": _compare_models(ours, theirs), **_compare_episodes(ours, theirs, seed, ~on_field)}
        else:
            _episode(ours, seed)
            _copy_model(ours, theirs)
        state = {name: _read(ours, name) for name in _STATE}
        table["forward"] = _compare_forward(ours, theirs, state, ~on_field)
        table["rays"] = _compare_rays(ours, theirs)
        table["open_loop"], table["height_fields"] = _compare_open_loop(ours, theirs, state, on_field)
        table["limits"] = warp_limits(theirs)
    return {name: values for name, values in table.items() if values}


def format_agreement(name: str, table: dict[str, dict[str, float]]) -> str:
    """The tables of one task as text."""
    lines = [name]
    for part, values in table.items():
        cells = "  ".join(f"{key} {value:.2g}" for key, value in values.items())
        lines.append(f"  {part:10s} {cells}")
    return "\n".join(lines)


def _build(cfg: ManagerBasedRlEnvCfg, physics: str, num_envs: int, seed: int, device: str) -> GantryEnv:
    cfg.scene.num_envs = num_envs
    cfg.seed = seed
    return GantryEnv(cfg, device, physics)


def _read(env: GantryEnv, name: str) -> torch.Tensor:
    """A copy on the CPU."""
    # mjlab's proxy of a Warp array becomes a plain tensor by slicing.
    return torch.as_tensor(getattr(env.sim.data, name)[:]).detach().cpu().clone()


def _on_height_field(env: GantryEnv) -> torch.Tensor:
    terrain = env.scene.terrain
    generator = None if terrain is None else terrain.cfg.terrain_generator
    if terrain is None or generator is None:
        return torch.zeros(env.num_envs, dtype=torch.bool)
    # mjlab names the classes of its height-field terrains so.
    field = [type(sub_terrain).__name__.startswith("Hf") for sub_terrain in generator.sub_terrains.values()]
    return torch.tensor(field)[terrain.terrain_types]


def _per_env(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """(N,) the largest absolute difference in each environment."""
    return (ours.double() - theirs.double()).abs().reshape(len(ours), -1).amax(dim=1)


def _largest(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.double().flatten() - theirs.double().flatten()).abs().max()) if ours.numel() else 0.0


def _summary(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, float]:
    difference = _per_env(ours, theirs)
    return {name: float(difference.max()), f"{name}_median": float(difference.median())}


def _copy_model(ours: GantryEnv, theirs: GantryEnv) -> None:
    """Give ``theirs`` the randomised fields of ``ours``, and what derives from them."""
    for name in ours.sim.expanded_fields.union(CONSTANT_FIELDS):
        theirs.sim.model.__getattr__(name)[:] = ours.sim.model.__getattr__(name)[:].to(theirs.device)


def _compare_models(ours: GantryEnv, theirs: GantryEnv) -> dict[str, float]:
    table = {}
    for name in sorted(ours.sim.expanded_fields.union(CONSTANT_FIELDS)):
        a, b = (env.sim.model.__getattr__(name)[:].cpu() for env in (ours, theirs))
        if name in CONSTANT_FIELDS:
            table[f"{name}_relative"] = _largest(a, b) / float(a.abs().max())
        else:
            table[name] = _largest(a, b)
    return table


def _compare_episodes(ours: GantryEnv, theirs: GantryEnv, seed: int, rows: torch.Tensor) -> dict[str, dict[str, float]]:
    first, second = (_episode(env, seed) for env in (ours, theirs))
    reset = {name: _largest(value[rows], second[0][name][rows]) for name, value in first[0].items()}
    step = {}
    for index in CONTROL_STEPS:
        for name in first[index]:
            if name != "done":
                step.update(_summary(f"{name}_{index}", first[index][name][rows], second[index][name][rows]))
    done = [torch.stack([entry["done"] for entry in trace[1:]]) for trace in (first, second)]
    step["done_count"] = float(done[0].sum())
    step["done_mismatch_count"] = float((done[0] != done[1]).sum())
    return {"reset": reset, "step": step}


def _episode(env: GantryEnv, seed: int) -> list[dict[str, torch.Tensor]]:
    """States of control steps from a seeded reset: the same actions in every backend, and resets on the way."""
    generator = torch.Generator().manual_seed(seed)
    observations, _ = env.reset(seed=seed)
    env.episode_length_buf[::4] = env.max_episode_length - max(CONTROL_STEPS) // 2
    trace = [{"qpos": _read(env, "qpos"), "qvel": _read(env, "qvel"), **_tensors(observations)}]
    for _ in range(max(CONTROL_STEPS)):
        action = 0.3 * torch.randn(env.num_envs, env.action_manager.total_action_dim, generator=generator)
        observations, reward, terminated, truncated, _ = env.step(action)
        done = terminated | truncated
        trace.append({**_tensors(observations), **_tensors({"reward": reward, "done": done})})
    return trace


def _tensors(observations: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Copies on the CPU."""
    return {name: value.cpu().clone() for name, value in observations.items()}


def _set_state(env: GantryEnv, state: dict[str, torch.Tensor]) -> None:
    for name, value in state.items():
        if value.numel():
            getattr(env.sim.data, name)[:] = value.to(env.device)


def _compare_forward(
    ours: GantryEnv, theirs: GantryEnv, state: dict[str, torch.Tensor], rows: torch.Tensor
) -> dict[str, float]:
    table = {}
    for env in (ours, theirs):
        _set_state(env, state)
        env.sim.forward()
    for name in DERIVED_FIELDS:
        a, b = _read(ours, name)[rows], _read(theirs, name)[rows]
        table[name] = _largest(a, b)
        if name in ("qacc", "sensordata"):
            table[f"{name}_relative"] = table[name] / float(a.abs().max())
    return table


def _compare_rays(ours: GantryEnv, theirs: GantryEnv) -> dict[str, float]:
    """Ray sensors in the state of the last ``forward``; differences are those of rays that hit in both."""
    table = {}
    for env in (ours, theirs):
        env.sim.sense()
    for name, sensor in ours.scene.sensors.items():
        if isinstance(sensor, RayCastSensor):
            a, b = sensor.data, theirs.scene.sensors[name].data
            distances, normals = (a.distances, b.distances.cpu()), (a.normals_w, b.normals_w.cpu())
            found = [values >= 0 for values in distances]
            hit = found[0] & found[1]
            table[name] = _largest(*(values[hit] for values in distances))
            table[f"{name}_normals"] = _largest(*(values[hit] for values in normals))
            table[f"{name}_hit_mismatch_count"] = float((found[0] != found[1]).sum())
    return table


def _compare_open_loop(
    ours: GantryEnv, theirs: GantryEnv, state: dict[str, torch.Tensor], on_field: torch.Tensor
) -> tuple[dict[str, float], dict[str, float]]:
    table, fields = {}, {}
    for env in (ours, theirs):
        _set_state(env, state)
    for substep in range(1, max(HORIZONS) + 1):
        ours.sim.step()
        theirs.sim.step()
        if substep in HORIZONS:
            for name in ("qpos", "qvel"):
                a, b = _read(ours, name), _read(theirs, name)
                table.update(_summary(f"{name}_{substep}", a[~on_field], b[~on_field]))
                if on_field.any():
                    fields.update(_summary(f"{name}_{substep}", a[on_field], b[on_field]))
    return table, fields


def warp_limits(theirs: GantryEnv) -> dict[str, float]:
    """Fill of MuJoCo Warp's contact and constraint arrays in the last state; beyond 1 it drops some."""
    data = theirs.sim.wp_data
    contacts, rows = data.nacon.numpy(), data.nefc.numpy()
    return {
        "contacts_used": float(contacts.max()) / data.naconmax,
        "constraint_rows_used": float(rows.max()) / data.njmax,
        "contacts_per_env": float(contacts.max()) / theirs.num_envs,
    }
