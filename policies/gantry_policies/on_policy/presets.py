"""Settings of PPO for tasks of flat observations and bounded actions, with and without a teacher."""

from __future__ import annotations

from dataclasses import replace

from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg


def bounded(instructed: bool = False) -> PpoCfg:
    """Few samples: small networks, large minibatches, actions within their bounds.

    Args:
        instructed: Whether the observation holds an instruction, which the networks then read.
    """
    network = "words" if instructed else "mlp"
    return PpoCfg(
        total_steps=1_000_000,
        steps_per_env=64,
        epochs=5,
        minibatch_samples=1024,
        learning_rate=5e-4,
        entropy=0.002,
        gamma=0.99,
        normalize=True,
        network=network,
        critic_network=network,
        hidden=(128, 128),
        critic_hidden=(128, 128),
        distribution="beta",
        mirror="none",
    )


def distilled(instructed: bool = False) -> PpoCfg:
    """Refined policy distillation (arXiv 2503.05833): PPO, and the squared distance of the student's mean from what the
    teacher would do, on the student's own states, with a constant weight.

    Args:
        instructed: As in :func:`bounded`.
    """
    guide = ImitationCfg(
        action_weight=0.25, embedding_weight=0.0, imitation_iterations=0, action_loss="mean", required=True
    )
    return replace(bounded(instructed), guide=guide)


def dagger_then_ppo(instructed: bool = False) -> PpoCfg:
    """DAgger with a teacher's labels on the student's own states, in which the critic learns already, then PPO alone.

    Args:
        instructed: As in :func:`bounded`.
    """
    guide = ImitationCfg(
        action_weight=1.0,
        embedding_weight=0.0,
        imitation_iterations=20,
        imitation_learning_rate=1e-3,
        action_loss="mean",
        aggregate_rollouts=20,
        fade_iterations=1,
        required=True,
    )
    return replace(bounded(instructed), guide=guide)


def reverse_divergence(instructed: bool = False) -> PpoCfg:
    """PPO, and the divergence of the student's actions from the teacher's: on-policy distillation (arXiv 2603.26666).

    Args:
        instructed: As in :func:`bounded`.
    """
    guide = ImitationCfg(
        action_weight=0.05,
        embedding_weight=0.0,
        imitation_iterations=0,
        action_loss="reverse-kl",
        teacher_std=0.3,
        required=True,
    )
    return replace(bounded(instructed), guide=guide)


def looking(learner: PpoCfg) -> PpoCfg:
    """A learner for a student that looks at a small picture; its critic sees the numbers of the scene.

    There are fewer environments, so that rollouts are smaller. A phase of DAgger lasts as long as it gains, 0.8 million
    samples, and remembers the last 40 rollouts.

    Args:
        learner: Of a student that is told in words and sees numbers.
    """
    guide = learner.guide
    if guide is not None and guide.aggregate_rollouts:
        guide = replace(guide, imitation_iterations=400, aggregate_rollouts=40)
    return replace(learner, network="pictures", guide=guide, steps_per_env=64, epochs=3, minibatch_samples=512)
