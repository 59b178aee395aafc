"""A fleet of actors on Ray for one off-policy training.

Every actor is a process that reads the run from its folder, which all machines see, and makes its own environments.
Ray moves orders and stretches as pickles between its own processes, so a cluster is for machines that trust each other.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gantry_hardware.errors import GantryError
from gantry_policies.imitation.policy import make_base
from gantry_policies.off_policy.collecting.fleet import FleetActor, Order, Stretch
from gantry_policies.off_policy.fleet_trainer import FleetTrainer
from gantry_policies.off_policy.learner import Learner
from gantry_sim.process.ray_cluster import connected, reason_of
from gantry_sim.training.algorithms.off_policy import settings_of
from gantry_sim.training.bases import open_base
from gantry_sim.training.link.fleet import FleetCfg
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_files import BASE_FOLDER
from gantry_sim.training.run_folder import algorithm_of, read_run
from gantry_sim.training.run_validation import RunError

SEED_STEP = 1_000_003
"""Distance of the seeds of actors, so that those of near runs differ."""
_log = logging.getLogger("gantry.link.fleet")


@contextlib.contextmanager
def fleet_trainer(run: RunCfg, folder: Path, cfg: FleetCfg) -> Iterator[FleetTrainer]:
    """The training of a run, and its actors on Ray, which end with the context.

    Raises:
        RunError: If the algorithm does not collect, or collects by itself alone.
        GantryError: If Ray is missing, cannot be reached, or has no room for the actors.
    """
    algorithm = algorithm_of(run)
    if algorithm.make_fleet_trainer is None:
        also = "; several processes of torchrun can" if algorithm.processes else ""
        raise RunError(f"Algorithm '{algorithm.name}' cannot learn from actors on Ray; leave out --actors{also}.")
    with connected(cfg.address) as ray:
        require_room(cfg, float(ray.cluster_resources().get("CPU", 0.0)))
        fleet = RayFleet(ray, folder, run, cfg)
        try:
            torch.manual_seed(run.seed)
            trainer = algorithm.make_fleet_trainer(run, folder, fleet)
            assert isinstance(trainer, FleetTrainer)
            yield trainer
        finally:
            fleet.close()


def require_room(cfg: FleetCfg, cores: float) -> None:
    """Refuse actors that would wait for ever.

    Raises:
        GantryError: If they need more cores than a cluster has.
    """
    needed = cfg.actors * cfg.cpus
    if needed > cores:
        share = math.floor(100.0 * cores / cfg.actors) / 100.0
        raise GantryError(
            f"{cfg.actors} actors of {cfg.cpus:g} cores need {needed:g}, and the cluster has {cores:g}; expected fewer "
            f"--actors, or --cpus {share:g}, where they share cores."
        )


class RayFleet:
    """Actors on Ray; a :class:`~gantry_policies.off_policy.collecting.fleet.Fleet`.

    An actor that is lost with its process or machine is begun again with new environments; what it had not sent yet is
    collected again.

    Args:
        ray: The module, connected.
        folder: Of the run; every machine sees it.
        run: The run.
        cfg: Size.
    """

    def __init__(self, ray: Any, folder: Path, run: RunCfg, cfg: FleetCfg) -> None:
        self._ray, self._folder, self._seed, self._cfg = ray, str(folder.resolve()), run.seed, cfg
        self.actors, self.envs = cfg.actors, run.preset.env.num_envs
        self._lost = [0] * cfg.actors
        self._orders: dict[int, Order] = {}
        self._asked: dict[Any, int] = {}
        self._handles = [self._begin(actor) for actor in range(cfg.actors)]

    def ask(self, actor: int, order: Order) -> None:
        """Send an order to an actor that has none."""
        self._orders[actor] = order
        self._asked[self._handles[actor].collect.remote(order)] = actor

    def next(self, patience_s: float) -> tuple[int, Stretch] | None:
        """An actor that has done its order, and its answer; None where none has within ``patience_s`` seconds.

        Raises:
            GantryError: If an actor fails, or was lost too often.
        """
        done, _ = self._ray.wait(list(self._asked), timeout=patience_s)
        if not done:
            return None
        actor = self._asked.pop(done[0])
        try:
            return actor, self._ray.get(done[0])
        except self._ray.exceptions.RayTaskError as error:
            raise GantryError(f"Actor {actor} failed: {reason_of(error)}") from error
        except self._ray.exceptions.RayError as error:
            self._begin_again(actor, reason_of(error))
            return None

    def close(self) -> None:
        """End all actors."""
        for handle in self._handles:
            self._ray.kill(handle)

    def _begin(self, actor: int) -> Any:
        seed = self._seed + SEED_STEP * (1 + actor + self.actors * self._lost[actor])
        remote = self._ray.remote(num_cpus=self._cfg.cpus, max_restarts=0)(SimulatingActor)
        return remote.remote(self._folder, actor, seed % 2**31, int(self._cfg.cpus))

    def _begin_again(self, actor: int, reason: str) -> None:
        self._lost[actor] += 1
        if self._lost[actor] > self._cfg.retries:
            raise GantryError(f"Actor {actor} was lost {self._lost[actor]} times, the last time: {reason}")
        _log.warning("Actor %d was lost and begins again: %s", actor, reason)
        self._handles[actor] = self._begin(actor)
        self.ask(actor, self._orders[actor])


class SimulatingActor:
    """Process of an actor.

    Args:
        folder: Of the run.
        actor: Place among the actors, from 0.
        seed: Of environments and noise.
        cores: Cores that it may use; 0 for any.
    """

    def __init__(self, folder: str, actor: int, seed: int, cores: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's, which ends its actors.
        if cores and hasattr(os, "sched_setaffinity"):
            there = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {there[(actor * cores + k) % len(there)] for k in range(cores)})
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        place = Path(folder)
        run = replace(read_run(place), device="cpu", seed=seed)
        cfg = settings_of(run)
        env = run.task.make_env(run.preset.env, "cpu", seed)
        policy = open_base(place / BASE_FOLDER, run) if run.base else None
        learner = Learner(cfg.agent, env.obs_shapes, env.action_size, "cpu", seed)
        base = None if policy is None else make_base(policy, env.num_envs)
        self._actor = FleetActor(env, learner, base, torch.Generator(env.device).manual_seed(seed))

    def collect(self, order: Order) -> Stretch:
        """Follow an order."""
        return self._actor.collect(order)
