"""Recorded observations against those that the runtime builds of the recorded signals."""

import numpy as np
import torch

from gantry_deploy.observations.builder import ObservationBuilder
from gantry_deploy.policy.golden import recorded_signals
from gantry_sim.tasks.registry import FlatPolicy


def noisy_policy(env):
    """Random actions, the same in every run."""
    generator = torch.Generator().manual_seed(5)
    return FlatPolicy(lambda obs: 0.6 * torch.randn(len(obs), env.action_manager.total_action_dim, generator=generator))


def largest_difference(contract, rows):
    """Between the observation that the runtime builds of recorded signals and the environment's own."""
    builder = ObservationBuilder(contract, np.zeros((1, 1), np.float32))
    largest = 0.0
    for i, starts in enumerate(rows["episode_start"]):
        if starts:
            builder.reset()
        built = builder(recorded_signals(contract, rows, i))[0]
        largest = max(largest, float(np.abs(built - rows["observation"][i]).max()))
    return largest
