"""Settings of rsl_rl's PPO, as mjlab and Isaac Lab have them, as ours, and a list of what has no counterpart."""

from __future__ import annotations

from typing import Any

from gantry_policies.on_policy.config import PpoCfg

FLAT_MODEL = "MLPModel"
"""rsl_rl's network of numbers in no particular order."""
STD = 1.0
"""rsl_rl's first standard deviation of actions."""


def learner_of(agent: Any, num_envs: int) -> PpoCfg:
    """PPO with the numbers of a runner; networks that :func:`unmapped` names become flat ones.

    Args:
        agent: An ``RslRlOnPolicyRunnerCfg``.
        num_envs: Environments side by side; the number of iterations is the runner's.
    """
    ppo, actor, critic = agent.algorithm, agent.actor, agent.critic
    return PpoCfg(
        total_steps=agent.max_iterations * agent.num_steps_per_env * num_envs,
        steps_per_env=agent.num_steps_per_env,
        epochs=ppo.num_learning_epochs,
        minibatches=ppo.num_mini_batches,
        learning_rate=ppo.learning_rate,
        desired_kl=ppo.desired_kl if ppo.schedule == "adaptive" else None,
        gamma=ppo.gamma,
        lam=ppo.lam,
        clip=ppo.clip_param,
        clip_value_loss=ppo.use_clipped_value_loss,
        entropy=ppo.entropy_coef,
        max_grad_norm=ppo.max_grad_norm,
        init_std=_distribution(actor).get("init_std", STD),
        hidden=tuple(actor.hidden_dims),
        critic_hidden=tuple(critic.hidden_dims),
        activation=actor.activation,
        last_layer_scale=1.0,
        normalize=actor.obs_normalization,
        mirror="none",
    )


def unmapped(agent: Any) -> list[str]:
    """Settings of a runner that our PPO does not have, each as ``name = value``."""
    ppo, actor, critic = agent.algorithm, agent.actor, agent.critic
    expected = {
        "actor.class_name": (actor.class_name, FLAT_MODEL),
        "critic.class_name": (critic.class_name, FLAT_MODEL),
        "actor.rnn_type": (getattr(actor, "rnn_type", None), None),
        "critic.rnn_type": (getattr(critic, "rnn_type", None), None),
        "critic.activation": (critic.activation, actor.activation),
        "critic.obs_normalization": (critic.obs_normalization, actor.obs_normalization),
        "algorithm.class_name": (ppo.class_name, "PPO"),
        "algorithm.optimizer": (ppo.optimizer, "adam"),
        "algorithm.value_loss_coef": (ppo.value_loss_coef, 1.0),
        "algorithm.normalize_advantage_per_mini_batch": (ppo.normalize_advantage_per_mini_batch, False),
        "algorithm.rnd_cfg": (_kind(getattr(ppo, "rnd_cfg", None)), None),
        "algorithm.symmetry_cfg": (_kind(getattr(ppo, "symmetry_cfg", None)), None),
        "actor.distribution_cfg.class_name": (
            _distribution(actor).get("class_name", "GaussianDistribution"),
            "GaussianDistribution",
        ),
    }
    return [f"{name} = {found}" for name, (found, usual) in expected.items() if found != usual]


def _distribution(model: Any) -> dict[str, Any]:
    """Settings of a network's distribution: mjlab has a dictionary, Isaac Lab an object, some networks nothing."""
    found = model.distribution_cfg
    return found if isinstance(found, dict) else vars(found) if found is not None else {}


def _kind(part: Any) -> str | None:
    return None if part is None else type(part).__name__
