"""Guidance of cars by their scripted driver or by a trained policy.

TeLL-Drive (arXiv 2502.01387) lets a language model advise a learner; what is common is the way, not the teacher:
actions of an expert guide the learner on its own rollouts, less and less.
"""

from __future__ import annotations

from gantry_policies.on_policy.guidance import ImitationCfg

DRIVE_GUIDE = ImitationCfg(
    action_weight=1.0,
    embedding_weight=0.0,
    imitation_iterations=10,
    imitation_learning_rate=1e-3,
    action_loss="mean",
    fade_iterations=60,
)
"""Guidance of a driver by teachers: a tenth of a million steps of imitation, then less and less."""
