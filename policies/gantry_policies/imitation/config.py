"""Settings of behaviour cloning: frozen numbers, checked where they are made; and presets."""

from __future__ import annotations

from dataclasses import dataclass, field

from gantry_hardware.errors import GantryError, UnknownNameError

NETWORKS = ("mlp", "transformer", "flow")
"""Networks: one hidden state for the whole chunk; one query per step that attends to what is seen (ACT); a chunk drawn
by flow matching; its steps attend to what is seen."""
IMAGE_ENCODERS = ("conv", "vit", "deep", "resnet18", "keypoints")
"""Image encoders: two convolutions, those and a transformer block, four convolutions, a residual network of 18 layers,
or three convolutions that words scale and shift, and the places in the image where they answer most."""


@dataclass(frozen=True)
class ImageEncoderCfg:
    """Image encoder, one per camera; of no effect without cameras."""

    kind: str = "conv"
    """A name of :data:`IMAGE_ENCODERS`."""
    stem_width: int = 16
    """Channels of the first convolution, except in ``resnet18``."""
    width: int = 32
    """Channels of the last one, the numbers of a token; 512 in ``resnet18``, whatever is said here."""
    attention_heads: int = 4
    """Of the transformer block in ``vit``."""
    keypoints: int = 24
    """Places in the image that ``keypoints`` tells."""
    shift_pixels: int = 4
    """Largest random shift of images while learning; 0 for none."""
    learning_rate: float = 1e-3
    """Of AdamW."""

    def __post_init__(self) -> None:
        _known("network.image_encoder.kind", self.kind, IMAGE_ENCODERS)
        _at_least("network.image_encoder", self, 1, "stem_width", "width", "attention_heads", "keypoints")
        _at_least("network.image_encoder", self, 0, "shift_pixels")
        _positive("network.image_encoder", self, "learning_rate")


@dataclass(frozen=True)
class NetworkCfg:
    """From what is seen to a chunk of actions."""

    kind: str = "mlp"
    """A name of :data:`NETWORKS`."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of an ``mlp``."""
    image_size: int = 64
    """Numbers that an ``mlp`` makes of all image tokens."""
    width: int = 64
    """Numbers of a token in a ``transformer``."""
    heads: int = 4
    """Of its attention."""
    encoder_layers: int = 2
    """Of its encoder, in which everything that is seen attends to each other."""
    decoder_layers: int = 2
    """Of its decoder, in which the steps of the chunk attend to that."""
    feedforward: int = 256
    """Hidden numbers between attentions."""
    dropout: float = 0.0
    """Share of numbers left out while learning, in both kinds."""
    latent: int = 0
    """Numbers that say in which style a demonstrator acts, for a ``transformer`` trained as a conditional variational
    autoencoder; zero when acting. 0 for none."""
    flow_steps: int = 8
    """Steps from noise to a plan, of a ``flow``."""
    vocabulary: int = 0
    """Words of the instructions, which are the observation's last numbers; filled in from the task's contract. 0 for a
    policy that is told nothing in words."""
    labels: int = 0
    """Numbers of the labels that demonstrations have; filled in from them where ``label_weight`` counts."""
    word_layers: int = 1
    """Layers in which words attend to each other."""
    image_encoder: ImageEncoderCfg = field(default_factory=ImageEncoderCfg)
    """Image encoders."""

    def __post_init__(self) -> None:
        _known("network.kind", self.kind, NETWORKS)
        if not self.hidden or min(self.hidden) < 1:
            raise GantryError(f"network.hidden is {list(self.hidden)}, expected widths of at least 1.")
        _at_least("network", self, 1, "image_size", "width", "heads", "encoder_layers", "decoder_layers", "feedforward")
        _at_least("network", self, 0, "latent", "vocabulary", "labels", "word_layers")
        _at_least("network", self, 1, "flow_steps")
        if self.width % self.heads:
            raise GantryError(f"network.width is {self.width}, expected a multiple of network.heads {self.heads}.")
        if not 0.0 <= self.dropout < 1.0:
            raise GantryError(f"network.dropout is {self.dropout}, expected a number from 0 to below 1.")
        if self.latent and self.kind != "transformer":
            raise GantryError(f"network.latent is {self.latent}, expected 0 for a network of kind '{self.kind}'.")


@dataclass(frozen=True)
class BcCfg:
    """A training from demonstrations alone."""

    network: NetworkCfg = field(default_factory=NetworkCfg)
    """Network that is trained."""
    chunk_steps: int = 16
    """T, actions planned at once."""
    execute_steps: int = 8
    """Number of them that are executed before the next plan."""
    action_limit: float | None = 1.0
    """Largest action on either side of zero, to which plans are clamped; None for actions in units of their own."""
    steps: int = 3_000
    """Updates."""
    batch_size: int = 128
    """Chunks of an update."""
    learning_rate: float = 1e-3
    """Of AdamW, at its highest; it falls to zero along a cosine."""
    warmup_steps: int = 100
    """Updates in which the learning rate grows from zero."""
    weight_decay: float = 1e-4
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    state_noise: float = 0.0
    """Standard deviation of the noise on states while learning, in units of a state's own standard deviation."""
    latent_weight: float = 10.0
    """Weight of the divergence of styles from a standard normal distribution, with ``network.latent``."""
    label_weight: float = 0.0
    """Weight of the squared error of labels, ``observation.environment_state`` of a dataset, for example the places of
    what an instruction names. They are predicted while learning alone, so that an encoder comes to see what they tell;
    of no effect on demonstrations without them."""
    validation_share: float = 0.1
    """Share of episodes that are not learned from, to see how well others are predicted; 0 for none."""
    eval_every_steps: int = 0
    """Updates between evaluations in environments, each of which keeps a policy; 0 for none but the last one."""
    eval_episodes: int = 50
    """Episodes of an evaluation."""
    log_every_steps: int = 200
    """Updates between rows of metrics."""
    save_every_s: float = 120.0
    """Time between checkpoints; the end of a training always leaves one."""
    seed: int = 0
    """Of the network, the split, the order of chunks and all noise."""

    def __post_init__(self) -> None:
        _at_least("learner", self, 1, "chunk_steps", "execute_steps", "steps", "batch_size", "eval_episodes")
        _at_least("learner", self, 1, "log_every_steps")
        _at_least("learner", self, 0, "warmup_steps", "eval_every_steps", "seed")
        _positive("learner", self, "learning_rate", "max_grad_norm")
        for name in ("weight_decay", "state_noise", "latent_weight", "label_weight", "save_every_s"):
            if not getattr(self, name) >= 0.0:
                raise GantryError(f"learner.{name} is {getattr(self, name)}, expected a number >= 0.")
        if self.execute_steps > self.chunk_steps:
            raise GantryError(
                f"learner.execute_steps is {self.execute_steps}, expected at most learner.chunk_steps "
                f"{self.chunk_steps}."
            )
        if self.action_limit is not None and not self.action_limit > 0.0:
            raise GantryError(f"learner.action_limit is {self.action_limit}, expected a number > 0 or none.")
        if not 0.0 <= self.validation_share < 1.0:
            raise GantryError(
                f"learner.validation_share is {self.validation_share}, expected a number from 0 to below 1."
            )


def state() -> BcCfg:
    """For observations of numbers, on one CPU core: less than a minute."""
    return BcCfg()


def images() -> BcCfg:
    """For 84 x 84 images beside the state: small convolutions, on one CPU core in some two minutes.

    A transformer over the places of the images costs ten times as much.
    """
    return BcCfg(batch_size=64)


def vla() -> BcCfg:
    """Small vision-language-action model: words and two cameras to chunks by flow matching, on two CPU cores.

    Words choose what the image encoders look for, and labels teach them where it is; without labels they do not find
    it in as many demonstrations. ``network.kind`` ``mlp`` and ``transformer`` are the same with regression in place of
    the flow.
    """
    return BcCfg(
        network=NetworkCfg(
            kind="flow",
            width=64,
            heads=4,
            encoder_layers=1,
            decoder_layers=2,
            feedforward=256,
            word_layers=1,
            image_encoder=ImageEncoderCfg(kind="keypoints", stem_width=32, width=64),
        ),
        chunk_steps=16,
        execute_steps=8,
        batch_size=64,
        steps=6_000,
        learning_rate=1e-3,
        warmup_steps=200,
        state_noise=0.02,
        label_weight=0.3,
    )


def act_paper() -> BcCfg:
    """ACT as published (arXiv 2304.13705, appendix), with its style variable; wants a GPU and large images.

    What differs: positions of image tokens are learned, layers are normalised before and not after each part, and the
    image encoder is not pre-trained, so that its learning rate is that of the rest.
    """
    return BcCfg(
        network=NetworkCfg(
            kind="transformer",
            width=512,
            heads=8,
            encoder_layers=4,
            decoder_layers=7,
            feedforward=3200,
            dropout=0.1,
            latent=32,
            image_encoder=ImageEncoderCfg(kind="resnet18", shift_pixels=0, learning_rate=1e-5),
        ),
        chunk_steps=100,
        execute_steps=100,
        batch_size=8,
        steps=100_000,
        learning_rate=1e-5,
        latent_weight=10.0,
    )


PRESETS = {"state": state, "images": images, "vla": vla, "act_paper": act_paper}
"""Presets by name; each call gives a fresh configuration."""


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
