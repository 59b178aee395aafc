"""Scripted drivers, which may teach a car to drive without having learned it.

TeLL-Drive (arXiv 2502.01387) lets a language model advise a learner; what is common is the way, not the teacher:
actions of an expert guide the learner on its own rollouts, less and less.
"""

from __future__ import annotations

from gantry_policies.on_policy.config import GuideCfg
from gantry_policies.on_policy.teacher_protocol import TEACHER_GROUP
from gantry_sim.driving.env import DriveEnv

DRIVE_GUIDE = GuideCfg(
    action_weight=1.0,
    embedding_weight=0.0,
    imitation_iterations=10,
    imitation_learning_rate=1e-3,
    action_loss="mean",
    fade_iterations=60,
)
"""Guidance of a driver by teachers: a tenth of a million steps of imitation, then less and less."""


class RuleGuidedEnv(DriveEnv):
    """The same, with the actions of the scripted driver as one more observation group, which no policy is fed."""

    def _look(self) -> None:
        super()._look()
        self._seen[TEACHER_GROUP] = self.scene.scripted_actions()
