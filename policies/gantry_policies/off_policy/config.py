"""Settings of the off-policy learner: frozen numbers, checked where they are made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gantry_hardware.errors import GantryError, UnknownNameError

ACTORS = ("sac", "td3")
"""Actors: a squashed Gaussian with automatic temperature, or a deterministic one with smoothed targets."""
REDUCTIONS = ("ensemble_mean", "min_random_pair", "q1")
"""Reductions of the critic's heads to the value whose gradient trains the actor."""
CRITIC_LOSSES = ("mean_square", "squared_mean")
"""The mean over heads of squared errors; or the square of the heads' mean error, as in ResFiT's published numbers."""
ENCODERS = ("conv", "vit")
"""Image encoders: two convolutions, or those and a transformer block."""
TRUNKS = ("summary", "spatial")
"""Readings of tokens by a critic: all in a few numbers; or channel by channel along with the action, as ResFiT."""
TEACHING = ("none", "state", "only")
"""Imitation by the actor: none, so that corrections count through the critic alone; with a weight for each state; or
nothing but imitation (DAgger)."""
WARMUPS = ("base_noise", "uniform", "policy")
"""Policies that collect before learning: the base with noise, chance, or the frozen policy as it is."""


@dataclass(frozen=True)
class EncoderCfg:
    """Image encoder, one per camera, of no effect without cameras; and the words that a policy is told."""

    kind: str = "conv"
    """A name of :data:`ENCODERS`."""
    stem_width: int = 16
    """Channels of the first convolution."""
    width: int = 32
    """Channels of the last one, the numbers of a token."""
    attention_heads: int = 4
    """Of a transformer block."""
    shift_pixels: int = 4
    """Largest random shift of images while learning; 0 for none."""
    learning_rate: float = 3e-4
    """Of AdamW, for pictures and words."""
    vocabulary: int = 0
    """Words of the instructions, which are the state's last numbers; filled in from the task's contract. 0 for a policy
    that is told nothing in words."""

    def __post_init__(self) -> None:
        _known("learner.agent.encoder.kind", self.kind, ENCODERS)
        _at_least("learner.agent.encoder", self, 1, "stem_width", "width", "attention_heads")
        _at_least("learner.agent.encoder", self, 0, "shift_pixels", "vocabulary")
        _positive("learner.agent.encoder", self, "learning_rate")


@dataclass(frozen=True)
class CriticCfg:
    """An ensemble of action values (REDQ, arXiv 2101.05982; with LayerNorm as in RLPD, arXiv 2302.02948)."""

    heads: int = 10
    """K, networks of the ensemble."""
    target_heads: int = 2
    """M, heads drawn at random for each target, whose smallest value counts."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of a head."""
    layer_norm: bool = True
    """Normalise hidden layers, which keeps values of unseen actions from running away."""
    learning_rate: float = 3e-4
    """Of AdamW."""
    weight_decay: float = 0.0
    """Of AdamW."""
    tau: float = 0.005
    """Share of the way that the target moves with every update."""
    loss: str = "mean_square"
    """A name of :data:`CRITIC_LOSSES`."""
    target_range: tuple[float, float] | None = None
    """Clamp targets to it, where the rewards bound the returns; None for not."""
    trunk: str = "summary"
    """A name of :data:`TRUNKS`; of no effect without cameras."""
    trunk_size: int = 64
    """Numbers that a trunk gives."""
    conservative_weight: float = 0.0
    """Weight of keeping what was never tried from being overrated (Cal-QL, arXiv 2303.05479): values of the policy's
    own actions are pressed down as far as the rewards that were really earned, those of recorded ones lifted. For
    recorded chunks alone."""

    def __post_init__(self) -> None:
        _at_least("learner.agent.critic", self, 1, "heads", "target_heads", "trunk_size")
        if self.target_heads > self.heads:
            raise GantryError(
                f"learner.agent.critic.target_heads is {self.target_heads}, expected at most "
                f"learner.agent.critic.heads {self.heads}."
            )
        _widths("learner.agent.critic", self.hidden)
        _positive("learner.agent.critic", self, "learning_rate", "tau")
        _not_negative("learner.agent.critic", self, "weight_decay", "conservative_weight")
        _known("learner.agent.critic.loss", self.loss, CRITIC_LOSSES)
        _known("learner.agent.critic.trunk", self.trunk, TRUNKS)
        if self.target_range is not None and not self.target_range[0] < self.target_range[1]:
            raise GantryError(
                f"learner.agent.critic.target_range is {self.target_range}, expected a smaller and a larger number."
            )


@dataclass(frozen=True)
class TemperatureCfg:
    """Weight of the entropy, for a ``sac`` actor."""

    initial: float = 0.01
    """At the start. Where a success is worth 1 and nothing else is, much more drowns what actions are worth."""
    learning_rate: float = 3e-4
    """Of Adam on its logarithm; 0 keeps it."""
    entropy_per_action: float = -0.5
    """Entropy to aim at, for each number of an action."""
    backup: bool = False
    """Count the entropy of the next action in targets."""

    def __post_init__(self) -> None:
        _positive("learner.agent.temperature", self, "initial")
        _not_negative("learner.agent.temperature", self, "learning_rate")


@dataclass(frozen=True)
class ActorCfg:
    """The policy that is learned, or the residual over a base."""

    kind: str = "td3"
    """A name of :data:`ACTORS`."""
    residual: bool = False
    """Correct a frozen base policy: the actor sees its action, and starts at a correction of exactly zero."""
    action_scale: float = 1.0
    """Largest correction, in units of the scaled action; 1 for an actor without a base."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers."""
    layer_norm: bool = True
    """Normalise hidden layers."""
    learning_rate: float = 3e-4
    """Of AdamW. A residual wants little: with much it saturates before the critic knows anything."""
    weight_decay: float = 0.0
    """Of AdamW."""
    tau: float = 0.005
    """Share of the way that the target actor (``td3``) moves whenever the actor has."""
    gradient: str = "ensemble_mean"
    """Value whose gradient trains the actor, a name of :data:`REDUCTIONS`."""
    explore_std: float = 0.1
    """Of the noise on ``td3`` actions in training, in units of the scaled action and so independent of
    ``action_scale``."""
    target_std: float = 0.1
    """Of the noise on ``td3`` target actions."""
    target_std_clip: float = 0.3
    """Target noise is clipped to it."""
    progressive_updates: int = 0
    """Actor updates over which the largest correction grows from zero to ``action_scale``; 0 for at once."""
    penalty: float = 0.0
    """Weight of the mean square of the correction in the actor's loss."""
    image_size: int = 64
    """Numbers that the actor makes of all image tokens."""
    temperature: TemperatureCfg = field(default_factory=TemperatureCfg)
    """Of a ``sac`` actor."""

    def __post_init__(self) -> None:
        _known("learner.agent.actor.kind", self.kind, ACTORS)
        _known("learner.agent.actor.gradient", self.gradient, REDUCTIONS)
        _widths("learner.agent.actor", self.hidden)
        _positive("learner.agent.actor", self, "action_scale", "learning_rate", "tau", "target_std_clip")
        _not_negative("learner.agent.actor", self, "weight_decay", "explore_std", "target_std", "penalty")
        _at_least("learner.agent.actor", self, 0, "progressive_updates")
        _at_least("learner.agent.actor", self, 1, "image_size")
        if not self.residual and self.action_scale != 1.0:
            raise GantryError(
                f"learner.agent.actor.action_scale is {self.action_scale}, expected 1 for an actor without a base."
            )


@dataclass(frozen=True)
class TeachingCfg:
    """Use of demonstrations and corrections by the actor, beside the critic's."""

    mode: str = "none"
    """A name of :data:`TEACHING`."""
    weight: float = 2.5
    """Weight of imitation against the value, which is divided by its own size, for ``state``."""
    softness: float = 0.03
    """Difference of values over which a correction goes from worse to better, in units of the reward."""
    young_updates: int = 8_000
    """Critic updates until its verdict on corrections counts in full; before, they are taken to be better."""

    def __post_init__(self) -> None:
        _known("learner.agent.teaching.mode", self.mode, TEACHING)
        _positive("learner.agent.teaching", self, "weight", "softness")
        _at_least("learner.agent.teaching", self, 0, "young_updates")


@dataclass(frozen=True)
class GripperCfg:
    """Critic of the gripper's places, which it chooses among (HIL-SERL, arXiv 2410.21845), in place of the actor."""

    places: tuple[float, ...] = ()
    """Places of the gripper, the last number of a scaled action; none leave the gripper to the actor."""
    penalty: float = -0.02
    """Penalty of a command that opens or closes it, at most 0, which no other critic sees."""
    hidden: tuple[int, ...] = (128, 128)
    """Hidden layers."""
    learning_rate: float = 3e-4
    """Of AdamW."""
    tau: float = 0.005
    """Share of the way that the target moves with every update."""

    def __post_init__(self) -> None:
        _widths("learner.agent.gripper", self.hidden)
        _positive("learner.agent.gripper", self, "learning_rate", "tau")
        if self.places and (len(set(self.places)) < 2 or max(map(abs, self.places)) > 1.0):
            raise GantryError(
                f"learner.agent.gripper.places is {list(self.places)}, expected two or more different numbers from "
                "-1 to 1, or none."
            )
        if not self.penalty <= 0.0:
            raise GantryError(f"learner.agent.gripper.penalty is {self.penalty}, expected 0 or less.")

    @property
    def charge(self) -> float:
        """Penalty of a switch; 0 where no critic moves the gripper, or there may be none."""
        return self.penalty if self.places else 0.0


@dataclass(frozen=True)
class LearnerCfg:
    """Networks, targets and samples of an update."""

    actor: ActorCfg = field(default_factory=ActorCfg)
    """The policy."""
    critic: CriticCfg = field(default_factory=CriticCfg)
    """The values."""
    encoder: EncoderCfg = field(default_factory=EncoderCfg)
    """The eyes."""
    teaching: TeachingCfg = field(default_factory=TeachingCfg)
    """Imitation of corrections by the actor."""
    gripper: GripperCfg = field(default_factory=GripperCfg)
    """A critic that moves the gripper."""
    gamma: float = 0.99
    """Discount of a control step."""
    n_step: int = 3
    """Rewards summed into a target before the critic is asked; of a policy that plans chunks, the steps of a plan that
    are executed and valued together."""
    chunk_steps: int = 0
    """T, actions that the policy plans at once, as the clone does that it begins with (CO-RFT, arXiv 2508.02219); 0 for
    a policy of single actions."""
    batch_size: int = 256
    """Transitions of an update."""
    demo_fraction: float = 0.5
    """Share of demonstrations in a batch, if there are any."""
    critic_updates: int = 4
    """Critic updates in a call of ``update``, which ends in one of the actor."""
    max_grad_norm: float = 1.0
    """Gradients of each network are scaled down to this norm."""
    timeout_is_terminal: bool = False
    """Take running out of time for an end for good, as ResFiT's code does, instead of bootstrapping."""

    def __post_init__(self) -> None:
        _at_least("learner.agent", self, 1, "n_step", "batch_size", "critic_updates")
        _positive("learner.agent", self, "max_grad_norm")
        self._require_chunks()
        if self.gripper.places and self.actor.residual:
            raise GantryError("learner.agent.gripper.places are set, expected none where a base moves the gripper.")
        for name in ("gamma", "demo_fraction"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise GantryError(f"learner.agent.{name} is {getattr(self, name)}, expected a number from 0 to 1.")

    def _require_chunks(self) -> None:
        """Refuse what does not go with plans of several actions, and what goes with them alone."""
        if not self.chunk_steps:
            if self.critic.conservative_weight:
                raise GantryError(
                    f"learner.agent.critic.conservative_weight is {self.critic.conservative_weight}, expected 0 with "
                    "learner.agent.chunk_steps 0."
                )
            return
        if not 1 <= self.n_step <= self.chunk_steps:
            raise GantryError(
                f"learner.agent.n_step is {self.n_step}, expected at most learner.agent.chunk_steps {self.chunk_steps}."
            )
        for name, found, expected in (
            ("actor.kind", self.actor.kind, "td3"),
            ("actor.residual", self.actor.residual, False),
            ("gripper.places", self.gripper.places, ()),
            ("teaching.mode", self.teaching.mode, "none"),
        ):
            if found != expected:
                raise GantryError(
                    f"learner.agent.{name} is {found!r}, expected {expected!r} for a policy that plans chunks."
                )


@dataclass(frozen=True)
class OffPolicyCfg:
    """A training: what is collected, when it is learned from, when it is looked at."""

    agent: LearnerCfg
    """Networks, targets and samples of an update."""
    total_steps: int = 100_000
    """Environment steps of all environments together, warm-up included; 0 learns from recorded episodes alone."""
    updates_per_step: float = 1.0
    """Critic updates per environment step (UTD)."""
    capacity: int = 200_000
    """Frames in the replay buffer."""
    warmup: str = "base_noise"
    """Policy that collects the first steps, a name of :data:`WARMUPS`."""
    warmup_steps: int = 2_000
    """Environment steps of this warm-up."""
    warmup_noise: float = 0.2
    """Half-width of the uniform noise around the base's action, in units of the scaled action."""
    critic_warmup_updates: int = 0
    """Critic updates before the actor's first, with the actor as it is and targets without noise."""
    pretrain_updates: int = 0
    """Updates of actor and critic on demonstrations or other recorded episodes, before anything is collected."""
    clone_weight: float = 1.0
    """Weight of cloning the demonstrated action against the normalised value, in these updates only."""
    scale_actions: bool = True
    """Scale actions to the demonstrated range, widened by ``action_scale``; the environment's own range if not."""
    eval_every_steps: int = 10_000
    """Environment steps, or updates where nothing is collected, between evaluations, of which the first comes before
    any learning; 0 for none."""
    eval_episodes: int = 50
    """Episodes of an evaluation."""
    log_every_steps: int = 1_000
    """Environment steps between rows of metrics."""
    save_every_s: float = 120.0
    """Time between checkpoints; the end of a training always leaves one."""
    seed: int = 0
    """Of networks, samples and noise."""

    def __post_init__(self) -> None:
        _at_least("learner", self, 1, "capacity", "eval_episodes", "log_every_steps")
        _at_least(
            "learner",
            self,
            0,
            "total_steps",
            "warmup_steps",
            "critic_warmup_updates",
            "pretrain_updates",
            "eval_every_steps",
        )
        _not_negative("learner", self, "updates_per_step", "warmup_noise", "clone_weight", "save_every_s")
        _known("learner.warmup", self.warmup, WARMUPS)
        if self.is_offline and not self.pretrain_updates:
            raise GantryError("learner.total_steps and learner.pretrain_updates are 0, expected one of them above.")
        if self.agent.chunk_steps and (not self.is_offline or self.scale_actions):
            raise GantryError(
                f"learner.total_steps is {self.total_steps} and learner.scale_actions {self.scale_actions}, expected 0 "
                "and false for a policy that plans chunks: it learns from recorded episodes alone."
            )

    def share_of(self, count: int) -> OffPolicyCfg:
        """Settings of one of several processes: those in control steps of all environments, divided by their number."""
        names = ("total_steps", "warmup_steps", "log_every_steps")
        return replace(self, **{name: -(-getattr(self, name) // count) for name in names})

    @property
    def is_offline(self) -> bool:
        """Whether nothing is collected."""
        return self.total_steps == 0


def _known(field_name: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise UnknownNameError(field_name, name, names)


def _at_least(group: str, cfg: object, least: int, *names: str) -> None:
    for name in names:
        if getattr(cfg, name) < least:
            raise GantryError(f"{group}.{name} is {getattr(cfg, name)}, expected at least {least}.")


def _positive(group: str, cfg: object, *names: str) -> None:
    for name in names:
        if not getattr(cfg, name) > 0.0:
            raise GantryError(f"{group}.{name} is {getattr(cfg, name)}, expected a number > 0.")


def _not_negative(group: str, cfg: object, *names: str) -> None:
    for name in names:
        if not getattr(cfg, name) >= 0.0:
            raise GantryError(f"{group}.{name} is {getattr(cfg, name)}, expected a number >= 0.")


def _widths(group: str, hidden: tuple[int, ...]) -> None:
    if not hidden or min(hidden) < 1:
        raise GantryError(f"{group}.hidden is {list(hidden)}, expected widths of at least 1.")
