"""Things on the table in all environments: which one each episode asks for, and how far the others were moved."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from gantry_deploy.contract.parts import MAX_WORDS, InstructionSpec
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM
from gantry_deploy.language.instructions import tokens_of
from gantry_deploy.observations.scene import THINGS_SIGNAL, ZONES_SIGNAL
from gantry_sim.tasks.manipulation.rules import Start
from gantry_sim.tasks.manipulation.workbench import Workbench


class Things:
    """T things and Z zones in N environments, in the order of the bench, places in the arm's base frame.

    Args:
        bench: What lies on the table.
        model: The scene.
        spec: Vocabulary of the instructions; None in a task that is told nothing in words.
        like: Any tensor (N, ...) of the device to work on.
    """

    def __init__(self, bench: Workbench, model: mujoco.MjModel, spec: InstructionSpec | None, like: Tensor) -> None:
        count, device, frees = len(like), like.device, [model.joint(name) for name in bench.thing_bodies]
        self._spec = spec
        self.qpos_ids = torch.tensor([[int(free.qposadr[0]) + i for i in range(7)] for free in frees], device=device)
        """(T, 7) places of the things' poses in ``qpos``."""
        self._speed_ids = torch.tensor([[int(free.dofadr[0]) + i for i in range(3)] for free in frees], device=device)
        self.asked, self.verb = (torch.zeros(count, dtype=torch.long, device=device) for _ in "12")
        """(N,) places of the thing that is asked for among the things, and of the verb among the verbs."""
        self.texts = [""] * count
        """Instructions of the episodes; empty in a task that is told nothing in words."""
        self._tokens = torch.zeros(count, MAX_WORDS, device=device)
        self._zones_m = torch.zeros(count, 3 * len(bench.zones), device=device)
        self._laid_m = torch.zeros(count, len(frees), 3, device=device)
        self.pose = torch.zeros(count, len(frees), 7, device=device)
        """(N, T, 7) place in m and unit quaternion, w first, of each thing."""
        self.asked_pose, self.asked_speed = self.pose[:, 0], torch.zeros(count, device=device)
        """(N, 7) pose and (N,) speed, m/s, of the thing that is asked for."""
        self.others_moved_m = torch.zeros(count, device=device)
        """(N,) largest distance of another thing from its place at the start, m; 0 where there is no other."""

    def begin(self, env_ids: Tensor, start: Start) -> None:
        """Take what the episodes that begin in environments (k,) ask for."""
        self._laid_m[env_ids] = start.things_in_base[:, :, :3]
        self.asked[env_ids], self.verb[env_ids] = start.thing, start.verb
        if start.asked is None or self._spec is None:
            return
        self._zones_m[env_ids] = start.fixtures_m.flatten(1)
        for row, one in zip(env_ids.tolist(), start.asked, strict=True):
            self.texts[row] = one.text
            self._tokens[row] = torch.from_numpy(tokens_of(self._spec, one.text))

    def refresh(self, qpos: Tensor, qvel: Tensor) -> None:
        """Read the simulation's positions (N, q) and velocities (N, v), m, m/s and quaternions."""
        rows = torch.arange(qpos.shape[0], device=qpos.device)
        self.pose = qpos[:, self.qpos_ids]
        self.asked_pose = self.pose[rows, self.asked]
        self.asked_speed = qvel[:, self._speed_ids][rows, self.asked].norm(dim=-1)
        moved = (self.pose[:, :, :3] - self._laid_m).norm(dim=-1)
        moved[rows, self.asked] = 0.0
        self.others_moved_m = moved.amax(dim=-1)

    def signals(self, pos_m: Tensor) -> dict[str, Tensor]:
        """Signals of the scene and the instruction by name, (N, ...); none in a task that is told nothing in words.

        Args:
            pos_m: (N, T, 3) places of the things as they are seen, m.
        """
        if self._spec is None:
            return {}
        return {THINGS_SIGNAL: pos_m.flatten(1), ZONES_SIGNAL: self._zones_m, INSTRUCTION_TERM: self._tokens}
