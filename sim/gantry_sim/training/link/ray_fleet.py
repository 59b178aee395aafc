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
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common.checkpoint import list_checkpoints
from gantry_policies.imitation.policy import make_base
from gantry_policies.off_policy.collecting.fleet import FleetActor, Order, Stretch
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.trainer import OffPolicyTrainer
from gantry_sim.process.ray_cluster import connected, reason_of
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.training.algorithms.off_policy import settings_of
from gantry_sim.training.bases import open_base
from gantry_sim.training.link.fleet import FleetCfg
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_files import BASE_FOLDER
from gantry_sim.training.run_folder import algorithm_of, read_run
from gantry_sim.training.run_validation import RunError

NOTICE_S = 60.0
"""Time without an actor's answer after which it is named, s."""
_log = logging.getLogger("gantry.link.fleet")


@contextlib.contextmanager
def fleet_trainer(run: RunCfg, folder: Path, cfg: FleetCfg) -> Iterator[OffPolicyTrainer]:
    """The training of a run, and its actors on Ray, all of which have made their environments; they end with the
    context.

    Raises:
        RunError: If the algorithm does not collect, or collects by itself alone.
        GantryError: If Ray is missing, cannot be reached, or has no room for the actors.
    """
    algorithm = algorithm_of(run)
    if algorithm.make_fleet_trainer is None:
        also = "; several processes of torchrun can" if algorithm.processes else ""
        raise RunError(f"Algorithm '{algorithm.name}' cannot learn from actors on Ray; leave out --actors{also}.")
    with connected(cfg.address) as ray:
        require_room(cfg, [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]])
        fleet = RayFleet(ray, folder, run, cfg)
        try:
            torch.manual_seed(run.seed)
            with torch_threads(1):
                trainer = algorithm.make_fleet_trainer(run, folder, fleet)
            assert isinstance(trainer, OffPolicyTrainer)
            fleet.wait()
            yield trainer
        finally:
            fleet.close()


def require_room(cfg: FleetCfg, cores: Sequence[float]) -> None:
    """Refuse actors that would wait for ever.

    Args:
        cfg: The actors.
        cores: Cores of each machine.

    Raises:
        GantryError: If they do not fit.
    """
    if sum(math.floor(number / cfg.cpus + 1e-9) for number in cores) >= cfg.actors:
        return
    share = math.floor(100.0 * sum(cores) / cfg.actors) / 100.0
    advice = f", or --cpus {share:g}, where they share cores" if 0.0 < share < cfg.cpus else ""
    there = " + ".join(f"{number:g}" for number in cores)
    raise GantryError(
        f"{cfg.actors} actors of {cfg.cpus:g} cores do not fit a cluster of {there} cores; expected fewer "
        f"--actors{advice}."
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
        self._ray, self._folder, self._cfg = ray, str(folder.resolve()), cfg
        self.actors, self.envs = cfg.actors, run.preset.env.num_envs
        begun = list_checkpoints(folder / CHECKPOINTS)
        # With the newest checkpoint's number in the seed, a continuation draws episodes that were not seen before.
        self._seeds = np.random.SeedSequence([run.seed, int(begun[-1].stem.split("_")[1]) if begun else 0])
        self._class = ray.remote(num_cpus=cfg.cpus, max_restarts=0)(SimulatingActor)
        self._lost = [0] * cfg.actors
        self._asked: dict[Any, int] = {}
        self._since_s = [time.monotonic()] * cfg.actors
        self._handles = [self._begin() for _ in range(cfg.actors)]

    def wait(self) -> None:
        """Wait until every actor has made its environments.

        Raises:
            GantryError: If one fails, or was lost too often.
        """
        for actor, handle in enumerate(self._handles):
            self._ask(actor, handle.begin.remote)
        while self._asked:
            if (found := self.next(NOTICE_S)) is not None and found[1] is None:
                self._ask(found[0], self._handles[found[0]].begin.remote)

    def ask(self, actor: int, order: Order) -> None:
        """Send an order to an actor that has none.

        Raises:
            GantryError: If Ray does not take it.
        """
        self._ask(actor, lambda: self._handles[actor].collect.remote(order))

    def next(self, patience_s: float) -> tuple[int, Stretch | None] | None:
        """An actor without an order, and its answer, None of one that was lost and has begun again; None where every
        actor still works after ``patience_s`` seconds.

        Raises:
            GantryError: If an actor fails, was lost too often, or Ray does not answer.
        """
        with self._told():
            done, _ = self._ray.wait(list(self._asked), timeout=patience_s)
        if not done:
            self._name_the_slow()
            return None
        actor = self._asked.pop(done[0])
        try:
            answer = self._ray.get(done[0])
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(cause := getattr(error, "cause", None), GantryError):
                raise GantryError(f"Actor {actor}: {cause}") from error
            raise
        except self._ray.exceptions.RayError as error:
            self._begin_again(actor, reason_of(error))
            return actor, None
        self._lost[actor] = 0
        return actor, answer

    def close(self) -> None:
        """End all actors."""
        for handle in self._handles:
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError, ValueError):
                self._ray.kill(handle)

    def _ask(self, actor: int, send: Callable[[], Any]) -> None:
        with self._told():
            self._asked[send()] = actor
        self._since_s[actor] = time.monotonic()

    def _name_the_slow(self) -> None:
        now_s = time.monotonic()
        slow = [actor for actor in self._asked.values() if now_s - self._since_s[actor] > NOTICE_S]
        if not slow:
            return
        with self._told():
            free = self._ray.available_resources().get("CPU", 0.0)
        names = ", ".join(map(str, slow))
        _log.warning("No answer for %.0f s from actor %s; the cluster has %g free cores", NOTICE_S, names, free)
        for actor in slow:
            self._since_s[actor] = now_s

    def _begin(self) -> Any:
        seed = int(self._seeds.spawn(1)[0].generate_state(1)[0]) % 2**31
        with self._told():
            return self._class.remote(self._folder, seed, max(1, int(self._cfg.cpus)))

    def _begin_again(self, actor: int, reason: str) -> None:
        self._lost[actor] += 1
        if self._lost[actor] > self._cfg.retries:
            raise GantryError(f"Actor {actor} was lost {self._lost[actor]} times in a row, the last time: {reason}")
        _log.warning("Actor %d was lost and begins again: %s", actor, reason)
        with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError, ValueError):
            self._ray.kill(self._handles[actor])  # It may live on where only the connection to it is lost.
        self._handles[actor] = self._begin()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Name errors of Ray itself."""
        try:
            yield
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise GantryError(f"Ray: {reason_of(error)}") from error


class SimulatingActor:
    """Process of an actor.

    Args:
        folder: Of the run.
        seed: Of environments and noise.
        threads: Threads of physics.
    """

    def __init__(self, folder: str, seed: int, threads: int) -> None:
        self._folder, self._seed = Path(folder), seed
        self._actor: FleetActor | None = None
        os.environ["GANTRY_PHYSICS_THREADS"] = str(threads)

    def begin(self) -> bool:
        """Make the environments, if there are none yet.

        Raises:
            GantryError: As of the run's task; of no other class, since others need not travel between processes.
        """
        with contextlib.suppress(ValueError):  # Ctrl-C is the learner's, which ends its actors.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._actor is None:
            with _plain_errors():
                self._actor = self._made()
        return True

    def collect(self, order: Order) -> Stretch:
        """Follow an order.

        Raises:
            GantryError: As of :meth:`begin`, and of the environments.
        """
        self.begin()
        assert self._actor is not None
        with _plain_errors():
            return self._actor.collect(order)

    def _made(self) -> FleetActor:
        torch.set_num_threads(1)
        torch.manual_seed(self._seed)
        run = replace(read_run(self._folder), device="cpu", seed=self._seed)
        cfg = settings_of(run)
        env = run.task.make_env(run.preset.env, "cpu", self._seed)
        policy = open_base(self._folder / BASE_FOLDER, run) if run.base else None
        learner = Learner(cfg.agent, env.obs_shapes, env.action_size, "cpu", self._seed)
        base = None if policy is None else make_base(policy, env.num_envs)
        return FleetActor(env, learner, base, torch.Generator(env.device).manual_seed(self._seed + 1))


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except GantryError as error:
        raise GantryError(str(error)) from None
