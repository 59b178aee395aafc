"""Progress of an off-policy training beside the environments' steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Progress of a training beside the environment's steps; all of it goes into checkpoints."""

    prepared: bool = False
    """Demonstrations are labelled and scalers know them."""
    pretrained: int = 0
    """Updates on demonstrations alone."""
    critic_warmed: int = 0
    """Critic updates before the actor's first."""
    scaled: bool = False
    """Whether the scaler of states knows some."""
    updates_due: float = 0.0
    """Calls of the learner's update that the steps so far have earned and that are still to be done."""
    next_evaluation: int = 0
    """Environment steps at which the next evaluation is due."""
