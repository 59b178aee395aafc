"""How a policy is learned on-policy: frozen numbers, turned into rsl_rl's dictionaries in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.symmetry import MirrorMap

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
    """Weight of the entropy bonus."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    init_std: float = 0.5
    """Standard deviation of the actions at the start."""
    hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of the actor."""
    critic_hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of the critic."""
    activation: str = "elu"
    """Between layers."""
    last_layer_scale: float = 0.01
    """Factor on the initial weights of the actor's last layer."""
    normalize: bool = False
    """Running normalisation of observations, exported inside the graph."""
    mirror: bool = True
    """Use the robot's left-right symmetry, if the task knows it."""
    save_every_s: float = 30.0
    """Time between checkpoints; the end of a training always leaves one."""

    def __post_init__(self) -> None:
        for name in ("total_steps", "steps_per_env", "epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise GantryError(f"learner.{name} is {getattr(self, name)}, expected at least 1.")
        for name in ("learning_rate", "init_std", "max_grad_norm"):
            if not getattr(self, name) > 0.0:
                raise GantryError(f"learner.{name} is {getattr(self, name)}, expected a number > 0.")
        for name in ("hidden", "critic_hidden"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise GantryError(f"learner.{name} is {list(getattr(self, name))}, expected widths of at least 1.")
        if self.activation not in ACTIVATIONS:
            raise UnknownNameError("activation", self.activation, ACTIVATIONS)

    def as_rsl_rl(self, mirror: dict[str, MirrorMap] | None, learn_threads: int = 1) -> dict[str, Any]:
        """rsl_rl's nested dictionary; a fresh one at every call, since rsl_rl takes things out of it."""
        model = "rsl_rl.models:MLPModel"
        noise = {"class_name": "GaussianDistribution", "init_std": self.init_std, "std_type": "scalar"}
        common = {"class_name": model, "activation": self.activation, "obs_normalization": self.normalize}
        return {
            "algorithm": {
                "class_name": "gantry_policies.ppo:FewSamplePPO",
                "num_learning_epochs": self.epochs,
                "num_mini_batches": self.minibatches,
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
                "mirror": mirror if self.mirror else None,
                "learn_threads": learn_threads,
                "rnd_cfg": None,
            },
            "actor": common | {"hidden_dims": self.hidden, "distribution_cfg": noise},
            "critic": common | {"hidden_dims": self.critic_hidden},
            "obs_groups": {"actor": ["actor"], "critic": ["critic"]},
            "num_steps_per_env": self.steps_per_env,
            "check_for_nan": True,
            "logger": "tensorboard",
            "multi_gpu": None,
        }
