"""Presets of the one learner; each call gives a fresh configuration.

Those without ``paper`` in their name are sized for two CPU cores and observations of numbers: five heads of 128 units
instead of ten of 256 or more, and several environments side by side. A residual wants a low learning rate and a critic
that has seen the base's own data before the actor moves; with less warm-up, lower the actor's learning rate as well.
"""

from __future__ import annotations

from dataclasses import replace

from gantry_policies.off_policy.config import (
    ActorCfg,
    CriticCfg,
    EncoderCfg,
    LearnerCfg,
    OffPolicyCfg,
    TeachingCfg,
    TemperatureCfg,
)

CPU_HIDDEN = (128, 128)
"""Hidden layers of actors and critics on a CPU."""
CPU_HEADS = 5
"""Heads of critics on a CPU."""


def sac() -> OffPolicyCfg:
    """SAC from nothing (arXiv 1812.05905) with an ensemble and LayerNorm; no demonstrations."""
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(kind="sac", hidden=CPU_HIDDEN),
            critic=CriticCfg(heads=2, hidden=CPU_HIDDEN),
            n_step=1,
            demo_fraction=0.0,
            critic_updates=1,
        ),
        warmup="uniform",
        scale_actions=False,
    )


def rlpd() -> OffPolicyCfg:
    """RLPD (arXiv 2302.02948): SAC of which half of every batch is demonstrations."""
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(kind="sac", hidden=CPU_HIDDEN),
            critic=CriticCfg(heads=CPU_HEADS, hidden=CPU_HIDDEN),
            n_step=3,
            critic_updates=1,
        ),
        warmup="uniform",
        warmup_steps=1_000,
        scale_actions=False,
    )


def wsrl() -> OffPolicyCfg:
    """WSRL (arXiv 2412.07762): learn from demonstrations, collect with the frozen policy, then forget them.

    The pre-training here is TD learning with an actor held to the demonstrations (TD3+BC, arXiv 2106.06860) in place of
    the paper's Cal-QL; what comes after is the paper's, with smaller networks.
    """
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(
                kind="sac",
                hidden=CPU_HIDDEN,
                learning_rate=1e-4,
                temperature=TemperatureCfg(learning_rate=1e-4, entropy_per_action=0.0),
            ),
            critic=CriticCfg(heads=CPU_HEADS, hidden=CPU_HIDDEN),
            n_step=1,
            demo_fraction=0.0,
            critic_updates=4,
        ),
        warmup="policy",
        warmup_steps=5_000,
        pretrain_updates=5_000,
        scale_actions=False,
    )


def co_rft() -> OffPolicyCfg:
    """CO-RFT (arXiv 2508.02219) for a CPU: a clone that plans chunks, learned further from recorded episodes alone.

    The steps of a plan that are executed are one action of the critic, its return is theirs, and it is held by Cal-QL;
    the actor climbs its value (TD3) and is held to what was recorded by the loss that it was cloned with. The paper
    publishes no numbers of these weights and rates: they are ours.
    """
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(kind="td3", learning_rate=1e-4, target_std=0.1),
            critic=CriticCfg(heads=CPU_HEADS, hidden=CPU_HIDDEN, conservative_weight=0.1),
            gamma=0.99,
            n_step=8,
            chunk_steps=16,
            demo_fraction=0.0,
            critic_updates=1,
        ),
        total_steps=0,
        capacity=4_000,
        warmup="policy",
        warmup_steps=0,
        critic_warmup_updates=2_000,
        pretrain_updates=8_000,
        clone_weight=1.0,
        scale_actions=False,
        eval_every_steps=0,
    )


def resfit() -> OffPolicyCfg:
    """ResFiT (arXiv 2509.19301) for a CPU: a residual over a frozen, chunked base.

    Against :func:`resfit_paper` the networks are smaller, the warm-ups shorter, corrections and exploring four times as
    large, the actor's learning rate higher to match a fortieth of its updates, and running out of time is bootstrapped.
    Measured on the arm's tasks; with corrections of 0.2 and little noise most of the gain comes later or not at all.
    """
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(
                kind="td3",
                residual=True,
                action_scale=0.4,
                hidden=CPU_HIDDEN,
                learning_rate=1e-4,
                explore_std=0.2,
                target_std=0.1,
            ),
            critic=CriticCfg(heads=CPU_HEADS, hidden=CPU_HIDDEN),
            n_step=3,
            critic_updates=2,
        ),
        warmup="base_noise",
        warmup_steps=2_000,
        critic_warmup_updates=1_000,
    )


def hil_serl() -> OffPolicyCfg:
    """HIL-SERL (arXiv 2410.21845): RLPD-SAC whose demonstrations grow by a person's corrections.

    Two heads, of which the smaller is the target and whose mean trains the actor, no entropy in the target, one-step
    targets, half of every batch from demonstrations and corrections, two critic updates for one of the actor, as in the
    published code. Running out of time is bootstrapped unless ``timeout_is_terminal`` is set.
    """
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(kind="sac", hidden=CPU_HIDDEN, temperature=TemperatureCfg(initial=0.01)),
            critic=CriticCfg(heads=2, hidden=CPU_HIDDEN),
            gamma=0.97,
            n_step=1,
            critic_updates=2,
        ),
        updates_per_step=2.0,
        warmup="policy",
        warmup_steps=200,
        scale_actions=False,
    )


def hil_weighted() -> OffPolicyCfg:
    """:func:`hil_serl` with imitation of corrections in the actor's loss, weighted by state (after arXiv 2512.24288).

    Begins with updates on the demonstrations alone, so that the first attempts are worth a person's time.
    """
    cfg = hil_serl()
    agent = replace(cfg.agent, teaching=TeachingCfg(mode="state"))
    return replace(cfg, agent=agent, pretrain_updates=2_000, clone_weight=5.0)


def hil_images() -> OffPolicyCfg:
    """:func:`hil_weighted` from small images on a CPU: small batches and few updates."""
    cfg = hil_weighted()
    return replace(
        cfg,
        agent=replace(cfg.agent, batch_size=64),
        updates_per_step=1.0,
        capacity=20_000,
        total_steps=20_000,
        clone_weight=10.0,
    )


def hil_images_gpu() -> OffPolicyCfg:
    """:func:`hil_weighted` from images in full size: batches of 256, wide networks, four updates a step."""
    cfg = hil_weighted()
    agent = replace(
        cfg.agent,
        actor=replace(cfg.agent.actor, hidden=(256, 256)),
        critic=replace(cfg.agent.critic, heads=10, hidden=(256, 256)),
        encoder=EncoderCfg(kind="vit", stem_width=32, width=128),
        batch_size=256,
    )
    return replace(cfg, agent=agent, updates_per_step=4.0, total_steps=100_000, pretrain_updates=5_000)


def clone() -> OffPolicyCfg:
    """Plain cloning of demonstrations with the networks of :func:`hil_serl`: nothing is learned from trying."""
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(kind="td3", hidden=CPU_HIDDEN, explore_std=0.02),
            critic=CriticCfg(heads=2, hidden=CPU_HIDDEN),
            teaching=TeachingCfg(mode="only"),
            n_step=1,
            demo_fraction=1.0,
            critic_updates=1,
        ),
        total_steps=1,
        updates_per_step=0.0,
        warmup="policy",
        warmup_steps=0,
        pretrain_updates=3_000,
        scale_actions=False,
    )


def dagger() -> OffPolicyCfg:
    """HG-DAgger (arXiv 1810.02890): :func:`clone`, and then demonstrations and corrections are imitated alike."""
    return replace(
        clone(), total_steps=OffPolicyCfg(LearnerCfg()).total_steps, updates_per_step=1.0, pretrain_updates=1_000
    )


def hil_residual() -> OffPolicyCfg:
    """A residual over a frozen base (:func:`resfit`) whose demonstrations grow by a person's corrections."""
    return replace(resfit(), warmup="policy", warmup_steps=500, updates_per_step=2.0, critic_warmup_updates=500)


def resfit_images() -> OffPolicyCfg:
    """:func:`resfit` from small images on a CPU, where eyes cost nearly all: small batches and half the updates.

    Corrections are gentler: with those of ``resfit`` attempts fell below the base and were still there after 10,000
    steps.
    """
    cfg = resfit()
    actor = replace(cfg.agent.actor, action_scale=0.25, explore_std=0.1)
    learner = replace(cfg.agent, actor=actor, batch_size=64)
    return replace(cfg, agent=learner, updates_per_step=0.5, capacity=20_000, total_steps=24_000)


def resfit_paper() -> OffPolicyCfg:
    """ResFiT as published: ten heads of 1024 units, 84 x 84 images through a small transformer; wants a GPU.

    The weight decay is AdamW's default, on which the paper is silent.
    """
    return OffPolicyCfg(
        agent=LearnerCfg(
            actor=ActorCfg(
                kind="td3",
                residual=True,
                action_scale=0.1,
                hidden=(1024, 1024),
                learning_rate=1e-6,
                weight_decay=0.01,
                explore_std=0.05,
                target_std=0.05,
                target_std_clip=0.3,
                image_size=128,
            ),
            critic=CriticCfg(
                heads=10,
                hidden=(1024, 1024),
                learning_rate=1e-4,
                weight_decay=0.01,
                loss="squared_mean",
                trunk="spatial",
                trunk_size=1024,
            ),
            encoder=EncoderCfg(kind="vit", stem_width=128, width=128, learning_rate=1e-4),
            gamma=0.99,
            n_step=3,
            batch_size=256,
            demo_fraction=0.5,
            critic_updates=4,
            max_grad_norm=1.0,
            timeout_is_terminal=True,
        ),
        total_steps=300_000,
        updates_per_step=4.0,
        capacity=200_000,
        warmup="base_noise",
        warmup_steps=10_000,
        warmup_noise=0.2,
        critic_warmup_updates=10_000,
        eval_every_steps=10_000,
        eval_episodes=50,
    )


PRESETS = {
    "sac": sac,
    "rlpd": rlpd,
    "wsrl": wsrl,
    "co_rft": co_rft,
    "hil_serl": hil_serl,
    "hil_weighted": hil_weighted,
    "clone": clone,
    "dagger": dagger,
    "hil_residual": hil_residual,
    "resfit": resfit,
    "resfit_images": resfit_images,
    "resfit_paper": resfit_paper,
}
"""Presets by name."""
