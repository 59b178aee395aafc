"""A manipulation task as the parallel environments that off-policy learners train on.

mjlab restarts an episode inside the step that ends it, and what the episode ended in is gone. Here the environment is
told not to: the last observation is taken first, then the ended episodes begin anew.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gantry_deploy.observations.builder import ObservationBuilder
from gantry_hardware.errors import GantryError
from gantry_policies.common.batched_env import IMAGE_PREFIX, STATE, EnvStep, Observation
from gantry_sim.envs.manager_env import GantryEnv
from gantry_sim.envs.progress_env import FEATURES, KIND
from gantry_sim.process.suppress_output import quietly
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.tasks.manipulation.cfg import ArmCfg
from gantry_sim.tasks.manipulation.contract import arm_contract
from gantry_sim.tasks.manipulation.env import STATE_GROUP, make_arm_env
from gantry_sim.tasks.manipulation.state import ArmState
from gantry_sim.tasks.manipulation.terms import ACTION

CRITIC = "critic"
"""Key of what a learner's critic sees beside the policy's own observation."""
LABEL_UNIT_M = 0.1
"""Unit of the ways to object and goal among it."""
WRONG_THING = "wrong_thing"
"""Key of a step's extras: (N,) bool, another thing than the one that is asked for has been moved."""


RECENT_EPISODES = 100
"""Episodes, at least, that a share of successes is taken of."""


class CameraRig(Protocol):
    """Camera rig that takes the pictures of all environments."""

    def see(self, env_ids: Tensor | None = None) -> dict[str, Tensor]:
        """Pictures (k, 3, height, width), uint8, by camera, of some environments (k,) or of all."""
        ...

    def close(self) -> None:
        """Release what drawing holds."""
        ...


class ArmStepEnv:
    """Implements :class:`gantry_policies.common.batched_env.BatchedEnv`.

    Args:
        cfg: The task.
        seed: Of the episodes; the same seed gives the same ones.
        device: ``cpu`` or a CUDA device.

    Raises:
        GantryError: If images are asked for and this machine cannot draw them.
    """

    def __init__(self, cfg: ArmCfg, seed: int = 0, device: str = "cpu") -> None:
        self.cfg = cfg
        self.num_envs = cfg.num_envs
        self.device = device
        self.keep_final_obs = True
        """``next_obs`` always holds the last observation of episodes that ended."""
        with quietly(), _random_numbers_kept():
            self.env: GantryEnv = make_arm_env(cfg, device, seed)
        self.state: ArmState = self.env.task_state
        """What the simulator knows; a scripted expert reads it."""
        self.action_size = self.state.contract.action_size
        self.max_episode_steps = int(self.env.max_episode_length)
        self.dt_s = self.env.step_dt
        self._eyes = _make_eyes(self.env, cfg)
        whole = cfg.observer == "camera" or not self.state.rule.bench.is_told
        self._scene = _scene_builder(self.env, cfg) if cfg.critic and whole else None
        pixels = {f"{IMAGE_PREFIX}{name}": (3, cfg.image_px, cfg.image_px) for name in cfg.seen_cameras}
        self.obs_shapes: dict[str, tuple[int, ...]] = {STATE: (self.state.contract.observation_size,), **pixels}
        self.joint_targets = torch.zeros(self.num_envs, len(self.state.contract.joint_names), device=device)
        """(N, n) joint targets of the step just taken, rad and, of the gripper, m."""
        self._obs: Observation = {}
        self._actions: list[Tensor] = []
        """(N, a) each, since the beginning of the oldest episode that still runs."""
        self._ages = [0] * self.num_envs
        """Steps of the running episodes."""
        self._outcomes: deque[float] = deque(maxlen=max(RECENT_EPISODES, 2 * cfg.num_envs))
        """1 for each success among the episodes that ended last, otherwise 0."""

    def texts(self) -> list[str]:
        """Instructions of the N running episodes in plain words; empty ones in a task that is told nothing in words."""
        return list(self.state.things.texts)

    def labels(self) -> Tensor:
        """(N, 3) place of the object to handle, or (N, 6), that and the place where it belongs, in the arm's base frame
        [m]; in tasks that are told in words, of what the instruction names."""
        return torch.cat((self.state.object_pos, self.state.goal), dim=-1)

    def observe(self) -> Observation:
        """The newest observations, (N, ...) by key; empty before the first reset."""
        return self._obs

    def reset(self) -> Observation:
        """Begin new episodes everywhere; returns their first observations, (N, ...) by key, scaled."""
        with torch_threads(1):
            observed, _ = self.env.reset()
            self._obs = self._observation(observed)
        self._actions, self._ages = [], [0] * self.num_envs
        return self._obs

    def step(self, action: Tensor) -> EnvStep:
        """Apply actions, (N, action_size) in [-1, 1], without unit.

        Raises:
            GantryError: If the action has another shape, or the environments were never reset.
        """
        if tuple(action.shape) != (self.num_envs, self.action_size):
            raise GantryError(
                f"The action has shape {tuple(action.shape)}, expected ({self.num_envs}, {self.action_size})."
            )
        if not self._obs:
            raise GantryError("The environments were never reset; call reset() before the first step().")
        with torch_threads(1):
            observed, reward, terminated, timed_out, _ = self.env.step(action)
            self.state.refresh()
            assert self.state.decoder.targets is not None
            self.joint_targets = self.state.decoder.targets.clone()
            rule = self.state.rule
            success = rule.success(self.state)
            extras = {WRONG_THING: rule.wrong(self.state)} if rule.bench.is_told else {}
            if self.cfg.reward == "progress":
                extras |= self._progress()
            next_obs = self._observation(observed)
            ended = terminated | timed_out
            # In one copy, since each waits for a GPU.
            are_over, succeeded = torch.stack((ended, success)).tolist()
            self._outcomes.extend(float(won) for won, over in zip(succeeded, are_over, strict=True) if over)
            # The environment's own buffers change in the reset below.
            reward, terminated, truncated = reward.clone(), terminated.clone(), timed_out & ~terminated
            self._obs = self._restart(ended, next_obs) if any(are_over) else next_obs
        self._remember(action, are_over)
        return EnvStep(self._obs, next_obs, reward, terminated, truncated, success, extras)

    def step_metrics(self) -> dict[str, Tensor]:
        """Share of successes among the episodes that ended last; nothing before the first has ended."""
        if not self._outcomes:
            return {}
        return {"success_rate": torch.full((), sum(self._outcomes) / len(self._outcomes), device=self.device)}

    def close(self) -> None:
        """Release physics and drawing."""
        if self._eyes is not None:
            self._eyes.close()
        self.env.close()

    def training_state(self) -> dict[str, Any]:
        """State that leads back to this very moment: the running episodes, and what was done in them so far."""
        actions = torch.stack(self._actions) if self._actions else torch.zeros(0, self.num_envs, self.action_size)
        return {
            "begun": bool(self._obs),
            "episodes": [count - 1 for count in self.state.episodes],
            "ages": list(self._ages),
            "actions": actions.cpu(),
            "noise": self.state.noise.get_state(),
            "outcomes": list(self._outcomes),
        }

    def restore_training_state(self, state: dict[str, Any]) -> None:
        """Come back to such a moment, by living through its episodes again: they depend on nothing but their actions.

        Raises:
            GantryError: If it is one of environments of another number or with other actions.
        """
        actions, ages, episodes = state["actions"].to(self.device), state["ages"], state["episodes"]
        if tuple(actions.shape[1:]) != (self.num_envs, self.action_size):
            raise GantryError(
                f"The saved actions have shape {tuple(actions.shape)}, expected (steps, {self.num_envs}, "
                f"{self.action_size})."
            )
        self.state.episodes[:] = episodes
        if state["begun"]:
            self.reset()
            # Environments that began later live through something else until then.
            for step in range(len(actions) + 1):
                begin = [len(actions) - age == step > 0 for age in ages]
                for row in (row for row, begins in enumerate(begin) if begins):
                    self.state.episodes[row] = episodes[row]
                if any(begin):
                    self._obs = self._restart(torch.tensor(begin, device=self.device), self._obs)
                if step < len(actions):
                    self.step(actions[step])
            self._actions, self._ages = list(actions), list(ages)
        else:
            self.state.episodes[:] = [count + 1 for count in episodes]
        self.state.noise.set_state(state["noise"])
        self._outcomes.clear()
        self._outcomes.extend(state.get("outcomes", ()))

    def _remember(self, action: Tensor, are_over: list[bool]) -> None:
        self._actions.append(action.detach().clone())
        self._ages = [0 if over else age + 1 for age, over in zip(self._ages, are_over, strict=True)]
        del self._actions[: len(self._actions) - max(self._ages)]

    def _restart(self, ended: Tensor, last: Observation) -> Observation:
        """Begin new episodes where the last one ended; returns what is seen everywhere then."""
        ids = ended.nonzero().flatten()
        observed, _ = self.env.reset(env_ids=ids)
        state = torch.where(ended[:, None], observed[STATE_GROUP], last[STATE])  # type: ignore[arg-type]
        first: Observation = {STATE: state}
        if self.cfg.critic:
            first[CRITIC] = torch.where(ended[:, None], self._known(), last[CRITIC])
        if self._eyes is not None:
            for name, pictures in self._eyes.see(ids).items():
                first[f"{IMAGE_PREFIX}{name}"] = last[f"{IMAGE_PREFIX}{name}"].index_copy(0, ids, pictures)
        return first

    def _progress(self) -> dict[str, Tensor]:
        """Extras by which episodes are compared: what is handled, from hand and goal, the hand's opening; the verb."""
        state = self.state
        parts = (state.object_from_ee, state.goal_from_object, state.gripper_m[:, None])
        return {FEATURES: torch.cat(parts, dim=1).clone(), KIND: state.things.verb.clone()}

    def _observation(self, observed: dict) -> Observation:  # type: ignore[type-arg]
        seen: Observation = {STATE: observed[STATE_GROUP].clone()}
        if self.cfg.critic:
            seen[CRITIC] = self._known()
        if self._eyes is not None:
            seen |= {f"{IMAGE_PREFIX}{name}": pictures for name, pictures in self._eyes.see().items()}
        return seen

    def _known(self) -> Tensor:
        """Observation of the critic, (N, size): the numbers of the scene where the policy sees pictures or is told
        nothing in words, and last the way from the end effector to the object and on to its goal, in units of
        :data:`LABEL_UNIT_M`. Critics that read words are shown what the policy sees besides."""
        state = self.state
        state.refresh()
        ways = torch.cat((state.object_from_ee, state.goal_from_object), dim=-1) / LABEL_UNIT_M
        if self._scene is None:
            return ways
        action: Any = self.env.action_manager.get_term(ACTION)
        return torch.cat((self._scene(state.signals(action.raw_action)), ways), dim=-1)


@contextlib.contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """mjlab seeds everybody's random numbers while it builds; afterwards they go on as before."""
    plain, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(plain)
    np.random.set_state(arrays)


def _scene_builder(env: GantryEnv, cfg: ArmCfg) -> ObservationBuilder:
    contract = arm_contract(replace(cfg, observer="state"))
    return ObservationBuilder(contract, torch.zeros(env.num_envs, 1, device=env.device))


def _make_eyes(env: GantryEnv, cfg: ArmCfg) -> CameraRig | None:
    if not cfg.seen_cameras:
        return None
    from gantry_sim.tasks.manipulation.eyes import BenchCameras

    return BenchCameras(env, cfg.seen_cameras, cfg.image_px)
