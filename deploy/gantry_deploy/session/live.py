"""Weights of a learner that act on the robot: fetched in the background, adopted between two attempts."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.errors import PolicyError
from gantry_deploy.link.client import LinkClient
from gantry_deploy.policy.live_policy import LivePolicy
from gantry_deploy.policy.onnx_policy import Images, OnnxPolicy
from gantry_deploy.policy.policy import PolicyAction, open_base
from gantry_deploy.session.run import Live
from gantry_deploy.session.steps import SessionStep

FloatArray = NDArray[np.float32]

_LOG = logging.getLogger("gantry.session")
GRAPH = "live.onnx"
"""File of the learner's bundle that holds the acting network."""


class LiveActor:
    """A policy whose weights change: the learner's network, with its exploration noise, on a frozen base if it has one.

    Args:
        bundle: The learner's.
        live: The acting network.
        explore: Whether noise is added to actions, as in training.
        seed: Of the noise.
    """

    def __init__(self, bundle: Bundle, live: LivePolicy, explore: bool, seed: int = 0) -> None:
        contract = bundle.contract
        self.network = OnnxPolicy(bundle.model_bytes, contract)
        self.disagreement: float | None = None
        """Spread of the critic's heads at the last action; None before the first."""
        self._live, self._explore = live, explore
        self._random = np.random.default_rng(seed)
        self._size = contract.action_size
        self._base = open_base(bundle)

    def reset(self) -> None:
        """See :meth:`gantry_deploy.policy.policy.Policy.reset`."""
        if self._base is not None:
            self._base.reset()

    def copy(self) -> LiveActor:
        """See :meth:`gantry_deploy.policy.policy.Policy.copy`; weights that change have one robot.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError("A policy whose weights change acts on one robot.")

    def __call__(self, observation: FloatArray, images: Images | None = None) -> PolicyAction:
        """See :meth:`gantry_deploy.policy.policy.Policy.__call__`; the observation is (1, obs), dimensionless."""
        base = None if self._base is None else self._base(observation, images)
        noise = np.zeros((1, self._size), dtype=np.float32)
        if self._explore:
            noise = self._random.standard_normal(noise.shape).astype(np.float32)
        action, disagreement = self._live.act(observation, images, base, noise)
        self.disagreement = float(np.asarray(disagreement).reshape(-1)[0])
        return PolicyAction(action, base)


class LearnerLink:
    """Steps to a learner, and its weights back.

    Args:
        client: The connection.
        bundle: The learner's.
        graph: The acting network, ONNX.
        explore: Whether noise is added to actions.
    """

    def __init__(self, client: LinkClient, bundle: Bundle, graph: bytes, explore: bool) -> None:
        self._client = client
        self._policy = LivePolicy(graph)
        self._actor = LiveActor(bundle, self._policy, explore)
        self._acting = (0, "")
        self.live = Live(self._actor, client.facts, lambda: self._acting, lambda: self._actor.disagreement, self.adopt)
        """Weights for a :class:`gantry_deploy.session.run.SessionRun`."""
        self.adopt()

    def take(self, step: SessionStep) -> None:
        """See :meth:`gantry_deploy.session.parts.StepSink.take`."""
        self._client.offer(step)

    def discard(self, episode: int) -> None:
        """Steps that were sent stay with the learner: they are experience like any other."""

    def adopt(self) -> None:
        """Let the newest weights act, if there are newer ones."""
        newest = self._client.newest_parameters()
        if newest is None or newest.version == self._acting[0]:
            return
        try:
            self._policy.load(newest.tensors())
        except PolicyError as error:
            _LOG.error("Weights %d of the learner are not used: %s", newest.version, error)
            return
        self._acting = (newest.version, newest.sha256)
        self._client.report_applied(newest.version, newest.sha256)

    def statistics(self) -> dict[str, Any]:
        """Plain data for JSON: steps that the learner has, waiting ones, lost ones, and the weights that act."""
        return {
            "acknowledged": self._client.acknowledged,
            "waiting": self._client.waiting,
            "dropped": self._client.dropped,
            "parameters_version": self._acting[0],
            "parameters_sha256": self._acting[1],
        }
