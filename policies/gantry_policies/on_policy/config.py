"""Settings of on-policy learning: frozen numbers, turned into rsl_rl's dictionaries in one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gantry_deploy.observations.mirrors import MirrorMap
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.networks.layout import RASTER_TERM, ObservationLayout
from gantry_policies.networks.sizes import AmeCfg, BevNetCfg, KeypointsCfg, WordsNetCfg
from gantry_policies.on_policy.beta import INIT_STD_RANGE, MAX_INIT_STD
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.packing import RasterPacking
from gantry_policies.on_policy.teacher_protocol import Teacher

ACTIVATIONS = (
    "elu",
    "selu",
    "relu",
    "crelu",
    "lrelu",
    "tanh",
    "sigmoid",
    "softplus",
    "gelu",
    "swish",
    "mish",
    "identity",
)
"""Activations by rsl_rl's names."""

FLAT = ("mlp", "moe")
"""Networks of numbers in no particular order."""
NETWORKS = (*FLAT, "ame2", "ame1", "scan_mlp", "bev", "words", "pictures")
"""Actors: flat ones first, then those that look at an elevation map or a raster, read an instruction, or look at
pictures and read."""
CRITICS = (*FLAT, "bev", "words")
"""Critics; they see the simulator's own numbers, and ``bev`` and ``words`` all that the actor sees as well."""
MIRRORS = ("both", "critic", "none")
"""Networks that learn from mirrored samples."""

DISTRIBUTIONS = ("gaussian", "beta")
"""Distributions of actions: without bounds around a mean, or within [-1, 1]."""


_RANGES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (("learning_rate", "clip", "max_grad_norm", "init_std"), lambda value: 0.0 < value < math.inf, "a number > 0"),
    (
        ("entropy", "entropy_floor", "last_layer_scale", "save_every_s", "label_weight"),
        lambda value: 0.0 <= value < math.inf,
        "a number >= 0",
    ),
    (("gamma", "entropy_decay"), lambda value: 0.0 < value <= 1.0, "more than 0 and at most 1"),
    (("lam", "final_learning_rate_factor", "final_clip_factor"), lambda value: 0.0 <= value <= 1.0, "0 to 1"),
)
"""Valid ranges of a learner's fields: names, predicate, text for messages. NaN is always rejected."""


@dataclass(frozen=True)
class PpoCfg:
    """PPO and its networks."""

    total_steps: int
    """Control steps of all environments together after which training ends."""
    steps_per_env: int = 24
    """Control steps of each environment between two updates."""
    epochs: int = 4
    """Passes over the samples of an update."""
    minibatches: int = 4
    """Minibatches of a pass."""
    learning_rate: float = 1e-3
    """Of Adam, at the start."""
    final_learning_rate_factor: float = 1.0
    """The learning rate falls linearly to this share of itself."""
    desired_kl: float | None = None
    """Adapt the learning rate to this KL divergence, as rsl_rl does, instead of the linear schedule; None for not."""
    gamma: float = 0.97
    """Discount of a control step."""
    lam: float = 0.95
    """Of generalised advantage estimation."""
    clip: float = 0.2
    """Of the probability ratio."""
    clip_value_loss: bool = False
    """Clip the value loss as well."""
    entropy: float = 0.003
    """Weight of the entropy bonus at the start."""
    entropy_decay: float = 1.0
    """Factor on this weight per iteration."""
    entropy_floor: float = 0.0
    """The weight falls no further than this."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    init_std: float = 0.5
    """Standard deviation of the actions at the start."""
    network: str = "mlp"
    """The actor, a name of :data:`NETWORKS`."""
    ame: AmeCfg = field(default_factory=AmeCfg.small)
    """Sizes of an actor that looks at a map."""
    bev: BevNetCfg = field(default_factory=BevNetCfg)
    """Sizes of networks that look at a raster."""
    words: WordsNetCfg = field(default_factory=WordsNetCfg)
    """Sizes of networks that read an instruction."""
    keypoints: KeypointsCfg = field(default_factory=KeypointsCfg)
    """Sizes of networks that look at pictures."""
    hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of the actor; of its action head where the network looks at a map."""
    critic_network: str = "mlp"
    """The critic, a name of :data:`CRITICS`."""
    critic_hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of the critic; of each expert of a mixture."""
    experts: int = 16
    """Experts of a mixture."""
    activation: str = "elu"
    """Between layers."""
    last_layer_scale: float = 0.01
    """Factor on the initial weights of the actor's last layer."""
    normalize: bool = False
    """Running normalisation of observations, exported inside the graph; map windows are left as they are."""
    mirror: str = "both"
    """Networks that learn from the robot's left-right symmetry, if the task knows it: ``both``, ``critic`` or
    ``none``.
    """
    chunk_rows: int = 0
    """Most samples that run through the networks at once while learning, for want of memory; 0 for no limit."""
    guide: ImitationCfg = field(default_factory=ImitationCfg)
    """Guidance by a teacher, if there is one."""
    save_every_s: float = 30.0
    """Time between checkpoints; the end of a training always leaves one."""
    distribution: str = "gaussian"
    """Of the actions, a name of :data:`DISTRIBUTIONS`; ``beta`` is for tasks whose actions lie in [-1, 1]."""
    minibatch_samples: int = 0
    """Most samples of a minibatch: a rollout is cut into as few equal ones as that allows, and ``minibatches`` is of
    no effect; 0 for a fixed number of minibatches."""
    labels: int = 0
    """Numbers that a head on the actor's encoder predicts while it learns, the last ones that the critic is shown; 0
    for no such head. For networks that read an instruction or look."""
    label_weight: float = 0.0
    """Weight of its squared error."""
    final_clip_factor: float = 1.0
    """The clip falls linearly to this share of itself."""

    def __post_init__(self) -> None:
        for name in ("total_steps", "steps_per_env", "epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise GantryError(f"learner.{name} is {getattr(self, name)}, expected at least 1.")
        self._require_ranges()
        self._require_labels()
        for name in ("hidden", "critic_hidden"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise GantryError(f"learner.{name} is {list(getattr(self, name))}, expected widths of at least 1.")
        if self.experts < 1:
            raise GantryError(f"learner.experts is {self.experts}, expected at least 1.")
        if self.chunk_rows < 0:
            raise GantryError(f"learner.chunk_rows is {self.chunk_rows}, expected 0 for no limit, or more.")
        if self.minibatch_samples < 0 or self.minibatch_samples == 1:
            raise GantryError(
                f"learner.minibatch_samples is {self.minibatch_samples}, expected at least 2, or 0 to use "
                "learner.minibatches."
            )
        if self.distribution == "beta" and self.init_std >= MAX_INIT_STD:
            raise GantryError(f"learner.init_std is {self.init_std}, which no Beta has. {INIT_STD_RANGE}")
        for kind, known in (
            ("activation", ACTIVATIONS),
            ("network", NETWORKS),
            ("critic_network", CRITICS),
            ("mirror", MIRRORS),
            ("distribution", DISTRIBUTIONS),
        ):
            if getattr(self, kind) not in known:
                raise UnknownNameError(kind, getattr(self, kind), known)

    def _require_labels(self) -> None:
        if self.labels < 0:
            raise GantryError(f"learner.labels is {self.labels}, expected at least 0.")
        if bool(self.labels) != (self.label_weight > 0.0):
            raise GantryError(
                f"learner.labels is {self.labels} and learner.label_weight {self.label_weight:g}, expected both above "
                "0, or both 0."
            )
        if self.labels and self.network in FLAT:
            raise GantryError(f"learner.labels is {self.labels}, and network '{self.network}' predicts nothing.")
        if self.labels and self.mirror == "critic":
            raise GantryError(
                f"learner.labels is {self.labels}, and learner.mirror 'critic' mirrors them without what the actor "
                "sees; expected 'both' or 'none'."
            )

    def _require_ranges(self) -> None:
        for names, fits, expected in _RANGES:
            for name in names:
                value = getattr(self, name)
                if not fits(value):
                    raise GantryError(f"learner.{name} is {value}, expected {expected}.")
        if self.desired_kl is not None and not 0.0 < self.desired_kl < math.inf:
            raise GantryError(f"learner.desired_kl is {self.desired_kl}, expected a number > 0, or none.")

    def learning_rate_at(self, iteration: int, iterations: int) -> float:
        """The linear schedule at an iteration, counted from 0."""
        share = iteration / iterations
        return self.learning_rate * (1.0 - (1.0 - self.final_learning_rate_factor) * share)

    def clip_at(self, iteration: int, iterations: int) -> float:
        """The clip of an iteration, counted from 0."""
        return self.clip * (1.0 - (1.0 - self.final_clip_factor) * (iteration / iterations))

    def minibatches_of(self, samples: int) -> int:
        """Number of minibatches of a rollout with this many samples."""
        return -(-samples // self.minibatch_samples) if self.minibatch_samples else self.minibatches

    def entropy_at(self, iteration: int) -> float:
        """Weight of the entropy bonus at an iteration, counted from 0."""
        return max(self.entropy * self.entropy_decay**iteration, min(self.entropy, self.entropy_floor))

    def mirror_maps(self, mirror: dict[str, MirrorMap] | None) -> dict[str, MirrorMap] | None:
        """Those of a task's symmetry maps (by observation group, and ``action``) that this learner uses."""
        if mirror is None or self.mirror == "none":
            return None
        return {"critic": mirror["critic"]} if self.mirror == "critic" else mirror

    def as_rsl_rl(
        self,
        mirror: dict[str, MirrorMap] | None,
        learn_threads: int = 1,
        layout: ObservationLayout | None = None,
        teacher: Teacher | None = None,
        samples: int = 1,
        images: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """rsl_rl's nested dictionary; a fresh one at every call, since rsl_rl takes things out of it.

        Args:
            mirror: Symmetry maps by observation group, and ``action``; None for none.
            learn_threads: Parts that minibatches are cut into.
            layout: Of the actor's observation; networks that look at a map need it.
            teacher: Teacher that guides the learner, or None.
            samples: Of a rollout, all environments together; ``minibatch_samples`` asks for it.
            images: Groups of pictures, for a network that looks at them.

        Raises:
            GantryError: If the network needs a layout.
        """
        guided = {} if teacher is None else {"teacher": teacher, "guide": self.guide}
        name = "teacher_guided:TeacherGuidedPPO" if guided else "ppo:FewSamplePPO"
        return {
            "algorithm": {
                "class_name": f"gantry_policies.on_policy.{name}",
                **guided,
                "num_learning_epochs": self.epochs,
                "num_mini_batches": self.minibatches_of(samples),
                "learning_rate": self.learning_rate,
                "schedule": "fixed" if self.desired_kl is None else "adaptive",
                "desired_kl": self.desired_kl,
                "gamma": self.gamma,
                "lam": self.lam,
                "clip_param": self.clip,
                "use_clipped_value_loss": self.clip_value_loss,
                "value_loss_coef": 1.0,
                "entropy_coef": self.entropy,
                "max_grad_norm": self.max_grad_norm,
                "last_layer_scale": self.last_layer_scale,
                "mirror": self.mirror_maps(mirror),
                "learn_threads": learn_threads,
                "chunk_rows": self.chunk_rows,
                "packing": self._packing(layout),
                "label_weight": self.label_weight,
                "rnd_cfg": None,
            },
            "actor": self.actor_model(layout),
            "critic": self._critic_model(layout),
            "obs_groups": {
                "actor": ["actor", *(images if self.network == "pictures" else ())],
                "critic": ["critic"] if self.critic_network in FLAT else ["actor", "critic"],
            },
            "num_steps_per_env": self.steps_per_env,
            "check_for_nan": True,
            "logger": "tensorboard",
            "multi_gpu": None,
        }

    def actor_model(self, layout: ObservationLayout | None) -> dict[str, Any]:
        """rsl_rl's dictionary of the actor.

        Raises:
            GantryError: If the network looks at a map or a raster, or reads words, and there is no layout to find
                them by.
        """
        noise = {"class_name": "GaussianDistribution", "init_std": self.init_std, "std_type": "scalar"}
        if self.distribution == "beta":
            noise = {"class_name": "gantry_policies.on_policy.beta:BetaActions", "init_std": self.init_std}
        head = {"hidden_dims": self.hidden, "distribution_cfg": noise}
        if self.network in FLAT:
            return self._flat(self.network) | head
        head |= {"labels": self.labels}
        if self.network == "pictures":
            return self._pictures(layout) | head
        return self._perceptive("Model", self.network, layout) | head

    def _critic_model(self, layout: ObservationLayout | None) -> dict[str, Any]:
        head = {"hidden_dims": self.critic_hidden}
        if self.critic_network in FLAT:
            return self._flat(self.critic_network) | head
        return self._perceptive("Critic", self.critic_network, layout) | head

    def _perceptive(self, kind: str, network: str, layout: ObservationLayout | None) -> dict[str, Any]:
        if layout is None:
            raise GantryError(f"learner.network is '{network}', which needs to know the observation's layout.")
        require, sizes = {
            "bev": (layout.require_raster, self.bev),
            "words": (layout.require_instruction, self.words),
        }.get(network, (layout.require_window, self.ame))
        require()
        return {
            "class_name": f"gantry_policies.networks.model:Perceptive{kind}",
            "activation": self.activation,
            "obs_normalization": self.normalize,
            "encoder": network,
            "sizes": sizes,
            "layout": layout,
        }

    def _pictures(self, layout: ObservationLayout | None) -> dict[str, Any]:
        if layout is None:
            raise GantryError("learner.network is 'pictures', which needs to know the observation's layout.")
        return {
            "class_name": "gantry_policies.networks.pictures:PictureModel",
            "activation": self.activation,
            "obs_normalization": self.normalize,
            "pictures": self.keypoints,
            "words": self.words,
            "layout": layout,
        }

    def _packing(self, layout: ObservationLayout | None) -> RasterPacking | None:
        rasters = [] if layout is None else [term for term in layout.terms if term.name == RASTER_TERM]
        return RasterPacking("actor", rasters[0].start, rasters[0].stop) if rasters else None

    def _flat(self, network: str) -> dict[str, Any]:
        common = {"activation": self.activation, "obs_normalization": self.normalize}
        if network == "moe":
            return common | {"class_name": "gantry_policies.networks.moe:MixtureModel", "experts": self.experts}
        return common | {"class_name": "rsl_rl.models:MLPModel"}
