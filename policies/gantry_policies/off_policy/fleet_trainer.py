"""Off-policy training on the steps of a fleet of actors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gantry_policies.common.batched_env import BatchedEnv
from gantry_policies.off_policy.bases import BasePolicy
from gantry_policies.off_policy.collecting.fleet import Fleet, FleetCollector
from gantry_policies.off_policy.config import OffPolicyCfg
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.off_policy.replay.demos import Demo
from gantry_policies.off_policy.trainer import OffPolicyTrainer


class FleetTrainer(OffPolicyTrainer):
    """Trains on the steps of a fleet.

    Args:
        env: Environments like the fleet's, in which the policy is evaluated.
        cfg: How.
        run_dir: Folder for metrics and checkpoints; None to write nothing.
        fleet: The actors.
        base: Frozen base of ``env``, of a residual.
        demos: Demonstrations, if any.
        device: Of the learner and its buffers.
        learn_threads: Threads of torch while learning.
    """

    def __init__(
        self,
        env: BatchedEnv,
        cfg: OffPolicyCfg,
        run_dir: Path | None,
        fleet: Fleet,
        *,
        base: BasePolicy | None = None,
        demos: Sequence[Demo] = (),
        device: str = "cpu",
        learn_threads: int = 1,
    ) -> None:
        super().__init__(env, cfg, run_dir, base=base, demos=demos, device=device, learn_threads=learn_threads)
        residual, columns = self.cfg.agent.actor.residual, fleet.actors * fleet.envs
        self.replay = ReplayBuffer(self.cfg.capacity, columns, env.obs_shapes, env.action_size, residual, device)
        self.collector = FleetCollector(fleet, self.learner, self.replay)  # type: ignore[assignment]
