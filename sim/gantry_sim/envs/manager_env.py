"""The one seam between mjlab's managers and the physics: a subclass that takes scene and simulation by name.

mjlab constructs both inside a constructor; :class:`GantryEnv` repeats that constructor (mjlab is pinned to one minor
version) instead of patching modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from mjlab.entity import Entity
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.mdp import nan_detection
from mjlab.envs.types import VecEnvStepReturn
from mjlab.managers import TerminationTermCfg

from gantry_hardware.errors import GantryError
from gantry_sim.physics.scene import GantryScene
from gantry_sim.physics.simulation import SelectiveSimulation, find_simulation
from gantry_sim.process.suppress_output import start_warp


@dataclass(kw_only=True)
class GantryEnvCfg(ManagerBasedRlEnvCfg):
    """mjlab's environment configuration with two switches that save time where a task allows it.

    A plain ``ManagerBasedRlEnvCfg`` works as well and leaves both off.
    """

    hold_controls: bool = False
    """Run all substeps of a control step in one call. Right when actuators take a position target that is constant
    over the step and no sensor counts substeps (contact air time, substep metrics)."""
    refresh_all: bool = True
    """Bring derived quantities up to date in every environment after a step. If false, only environments that were
    reset are, and the others see body, site and sensor data one substep late; qpos and qvel are always current."""
    near_ground: bool = False
    """Let every simulation hold only those boxes of the ground that its robot can reach: the same contacts in half the
    time on terrain of thousands of boxes. For MuJoCo C alone."""
    make_task_state: Callable[[Any], Any] | None = None
    """Builds what the task's terms share, from the environment, before any term is built: ``env.task_state``."""
    make_expert: Callable[[Any], Callable[[], torch.Tensor]] | None = None
    """Builds the task's scripted policy from the finished environment, when it is first asked for its actions (N, a) of
    a control step; None for none."""


def diverged(env: GantryEnv) -> torch.Tensor:
    """(N,) bool: environments whose physics broke down (NaN, Inf or huge values); every task ends their episodes."""
    return env.sim.diverged if env.is_selective else nan_detection(env)


class GantryEnv(ManagerBasedRlEnv):
    """mjlab's environment on a simulation that is chosen by name: by default MuJoCo C on ``cpu`` and MuJoCo Warp on
    another device. Warp runs on a CPU too, slowly, and takes the way of a GPU there.

    Args:
        cfg: Task configuration; changed by mjlab while it builds, so pass a fresh one.
        device: ``cpu`` or a CUDA device.
        physics: Name of the simulation, see :func:`gantry_sim.physics.simulation.find_simulation`.

    Raises:
        UnknownNameError: If there is no such simulation.
        GantryError: If it does not run on the device.
    """

    sim: Any
    state_version: int
    """Counts changes of the physics state, so that quantities shared by terms are computed once per change."""
    render_mode = _offline_renderer = None
    task_state: Any
    """Result of ``cfg.make_task_state``."""

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, physics: str | None = None) -> None:
        # Follows ManagerBasedRlEnv.__init__ of mjlab 1.6 but for the choice of scene and simulation.
        kind = find_simulation(device, physics)
        start_warp()
        self.cfg = cfg
        if cfg.seed is not None:
            cfg.seed = self.seed(cfg.seed)
        num_envs = cfg.scene.num_envs
        self._sim_step_counter = 0
        self.extras = {}
        self.obs_buf = {}
        self._manual_reset_pending = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self._command_dt = torch.zeros(num_envs, device=device)
        self.scene = kind.scene(cfg.scene, device=device)
        self.sim = kind.make(
            num_envs,
            cfg.sim,
            spec=self.scene.spec,
            variant_info=self.scene.collect_variant_info(),
            device=device,
            near_ground=getattr(cfg, "near_ground", False),
        )
        self.is_selective = isinstance(self.sim, SelectiveSimulation)
        """Whether the simulation can leave work out."""
        self._hold_controls = getattr(cfg, "hold_controls", False) and self.is_selective
        self._refresh_all = getattr(cfg, "refresh_all", True) or not self.is_selective
        if isinstance(self.scene, GantryScene):
            self.scene.ground_model = self.ground_model
        self.scene.initialize(self.sim.mj_model, self.sim.model, self.sim.data)
        if self.scene.sensor_context is not None:
            self.sim.set_sensor_context(self.scene.sensor_context)
        self.common_step_counter = 0
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)
        self.metadata["render_fps"] = 1.0 / self.step_dt
        self.keep_final_obs = False
        """Whether :attr:`final_obs` is made."""
        self.final_obs: dict[str, Any] | None = None
        """Observations (N, ...) by group at the end of the step just taken, before ended episodes began anew; None
        where none ended, or :attr:`keep_final_obs` is off."""
        self.load_managers()
        self.setup_manager_visualizers()

    def load_managers(self) -> None:
        """Build the terms' shared state, then the managers."""
        self.state_version = 0
        self._expert: Callable[[], torch.Tensor] | None = None
        self._expert_version = -1
        self._expert_action = torch.empty(0)
        make_task_state = getattr(self.cfg, "make_task_state", None)
        self.task_state = make_task_state(self) if make_task_state else None
        self.cfg.terminations.setdefault("diverged", TerminationTermCfg(func=diverged))
        super().load_managers()

    def expert_action(self) -> torch.Tensor:
        """Actions (N, a), dimensionless, of the task's scripted policy, which is asked once per state.

        Raises:
            GantryError: If the environment offers none.
        """
        make = getattr(self.cfg, "make_expert", None)
        if make is None:
            raise GantryError("This environment offers no expert's actions; that of a task's script does.")
        expert = self._expert = self._expert or make(self)
        if self._expert_version != self.state_version:
            self._expert_version, self._expert_action = self.state_version, expert()
        return self._expert_action

    @property
    def ground_model(self) -> Any:
        """Model of the whole scene, of which the physics may hold a part of the ground."""
        return getattr(self.sim, "ground_model", self.sim.mj_model)

    @property
    def robot(self) -> Entity:
        """The entity called ``robot``."""
        return self.scene["robot"]

    def step(self, action: torch.Tensor) -> VecEnvStepReturn:
        """One control step: mjlab's recipe, less the work that the configuration says can be left out.

        Args:
            action: Shape (N, a), dimensionless.
        """
        if not self.cfg.auto_reset and bool(self._manual_reset_pending.any()):
            pending = self._manual_reset_pending.nonzero().flatten().tolist()
            raise RuntimeError(f"Environments {pending} ended; reset(env_ids=...) them before the next step().")
        self.extras["log"] = {}
        self.action_manager.process_action(action.to(self.device))
        self._substeps()
        self.episode_length_buf += 1
        self.common_step_counter += 1
        self.reset_buf = self.termination_manager.compute()
        self.reset_terminated = self.termination_manager.terminated
        self.reset_time_outs = self.termination_manager.time_outs
        self.reward_buf = self.reward_manager.compute(dt=self.step_dt)
        self.metrics_manager.compute()
        for mode in ("step", "interval"):
            if mode in self.event_manager.available_modes:
                self.event_manager.apply(mode=mode, dt=self.step_dt)
        # To read which episodes ended is to wait for a GPU.
        looks = self.cfg.auto_reset or self.keep_final_obs
        ended = (self.reset_buf if looks else self.reset_buf[:0]).nonzero(as_tuple=False).squeeze(-1)
        self.final_obs = self._last_observations() if self.keep_final_obs and len(ended) > 0 else None
        reset_env_ids = ended if self.cfg.auto_reset else ended[:0]
        if len(reset_env_ids) > 0:
            self.recorder_manager.record_pre_reset(reset_env_ids)
            self._reset_idx(reset_env_ids)
            self.scene.write_data_to_sim()
        self._refresh(reset_env_ids)
        self._command_dt.fill_(self.step_dt)
        self._command_dt[reset_env_ids] = 0.0
        self.command_manager.compute(dt=self._command_dt)
        self.sim.sense()
        self.obs_buf = self.observation_manager.compute(update_history=True)
        if len(reset_env_ids) > 0:
            self.recorder_manager.record_post_reset(reset_env_ids)
        if not self.cfg.auto_reset:
            self._manual_reset_pending |= self.reset_buf
        self.recorder_manager.record_post_step()
        return self.obs_buf, self.reward_buf, self.reset_terminated, self.reset_time_outs, self.extras

    def _last_observations(self) -> dict[str, Any]:
        """Observations by group without any effect on those that follow, but for the noise that is drawn."""
        manager = self.observation_manager
        terms = [term.func for group in manager._group_obs_term_cfgs.values() for term in group]
        kept = [(term, term.memory) for term in terms if hasattr(term, "memory")]
        self.sim.sense()
        found = {group: manager.compute_group(group) for group in manager.active_terms}
        for term, memory in kept:
            term.memory = memory
        return found

    def _reset_idx(self, env_ids: torch.Tensor | None = None) -> None:
        super()._reset_idx(env_ids)
        self.state_version += 1

    def _substeps(self) -> None:
        count = 1 if self._hold_controls else self.cfg.decimation
        substeps = self.cfg.decimation // count
        for _ in range(count):
            self._sim_step_counter += substeps
            self.action_manager.apply_action()
            self.scene.write_data_to_sim()
            if substeps == 1:
                self.sim.step()
            else:
                self.sim.step(substeps)
            self.scene.update(dt=self.physics_dt * substeps)
            self.metrics_manager.compute_substep()
        self.state_version += 1

    def _refresh(self, reset_env_ids: torch.Tensor) -> None:
        if self._refresh_all:
            self.sim.forward()
        elif len(reset_env_ids) > 0:
            self.sim.forward(reset_env_ids)
        self.state_version += 1
