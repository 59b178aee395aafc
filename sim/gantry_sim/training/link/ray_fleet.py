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
from gantry_sim.process.ray_cluster import connected, reason_of, require_ray_installed
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


def fleet_trainer(run: RunCfg, folder: Path, fleet: RayFleet) -> OffPolicyTrainer:
    """The training of a run that learns from a fleet; the fleet need not have started.

    Raises:
        RunError: If the algorithm does not collect, or collects by itself alone.
        GantryError: If Ray is not installed, or the run's parts do not fit each other.
    """
    algorithm = algorithm_of(run)
    if algorithm.make_fleet_trainer is None:
        also = "; several processes of torchrun can" if algorithm.processes else ""
        raise RunError(f"Algorithm '{algorithm.name}' cannot learn from actors on Ray; leave out --actors{also}.")
    require_ray_installed()
    torch.manual_seed(run.seed)
    with torch_threads(1):
        trainer = algorithm.make_fleet_trainer(run, folder, fleet)
    assert isinstance(trainer, OffPolicyTrainer)
    return trainer


def require_room(cfg: FleetCfg, cores: Sequence[float]) -> None:
    """Refuse actors that would wait for ever.

    Args:
        cfg: The actors.
        cores: Cores of each machine.

    Raises:
        GantryError: If they do not fit.
    """

    def fit(cores_per_actor: float) -> bool:
        return sum(math.floor(number / cores_per_actor + 1e-9) for number in cores) >= cfg.actors

    if fit(cfg.cores_per_actor):
        return
    share = math.floor(100.0 * sum(cores) / cfg.actors) / 100.0
    advice = f", or --cpus {share:g}, where they share cores" if share > 0.0 and fit(share) else ""
    there = " + ".join(f"{number:g}" for number in cores)
    raise GantryError(
        f"{cfg.actors} actors of {cfg.cores_per_actor:g} cores do not fit a cluster of {there} cores; expected fewer "
        f"--actors{advice}."
    )


class RayFleet:
    """Actors on Ray; a :class:`~gantry_policies.off_policy.collecting.fleet.Fleet`.

    An actor that is lost with its process or machine is begun again with new environments; what it had not sent yet is
    collected again.

    Args:
        folder: Of the run; every machine sees it.
        run: The run.
        cfg: Size and place.
    """

    def __init__(self, folder: Path, run: RunCfg, cfg: FleetCfg) -> None:
        self._folder, self._cfg = folder.resolve(), cfg
        self.actors, self.envs = cfg.actors, run.preset.env.num_envs
        begun = list_checkpoints(folder / CHECKPOINTS)
        # With the newest checkpoint's number in the seed, a continuation draws episodes that were not seen before.
        self._seeds = np.random.SeedSequence([run.seed, int(begun[-1].stem.split("_")[1]) if begun else 0])
        self._lost = [0] * cfg.actors
        self._asked: dict[Any, int] = {}
        self._asked_at_s = [time.monotonic()] * cfg.actors
        self._handles: list[Any] = []
        self._ray: Any = None
        self._class: Any = None
        self._connection = contextlib.ExitStack()

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Connect to Ray, begin all actors, and wait until each has made its environments.

        Raises:
            GantryError: If Ray is missing, cannot be reached, or has no room for them, or if one fails or was lost too
                often.
        """
        self._ray = ray = self._connection.enter_context(connected(self._cfg.address))
        require_room(self._cfg, [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]])
        self._class = ray.remote(num_cpus=self._cfg.cores_per_actor, max_restarts=0)(SimulatingActor)
        self._handles = [self._begin() for _ in range(self.actors)]
        for actor, handle in enumerate(self._handles):
            self._ask(actor, handle.begin.remote)
        while self._asked:
            if (found := self._next_answer(NOTICE_S)) is not None and found[1] is None:
                self._ask(found[0], self._handles[found[0]].begin.remote)

    def ask(self, actor: int, order: Order) -> None:
        """Send an order to an actor that has none.

        Raises:
            GantryError: If Ray does not take it.
        """
        self._ask(actor, lambda: self._handles[actor].collect.remote(order))

    def next(self, patience_s: float) -> tuple[int, Stretch | None] | None:
        """Wait for an answer, see :meth:`gantry_policies.off_policy.collecting.fleet.Fleet.next`.

        Raises:
            GantryError: If an actor fails, was lost too often, or Ray does not answer.
        """
        return self._next_answer(patience_s)

    def close(self) -> None:
        """End all actors, and the connection."""
        handles, self._handles = self._handles, []
        with self._connection:
            for handle in handles:
                with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError, ValueError):
                    self._ray.kill(handle)

    def _next_answer(self, patience_s: float) -> tuple[int, Any] | None:
        with self._naming_ray_errors():
            done, _ = self._ray.wait(list(self._asked), timeout=patience_s)
        actor = self._asked.pop(done[0]) if done else None
        self._warn_of_slow_actors()
        if actor is None:
            return None
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

    def _ask(self, actor: int, send: Callable[[], Any]) -> None:
        with self._naming_ray_errors():
            self._asked[send()] = actor
        self._asked_at_s[actor] = time.monotonic()

    def _warn_of_slow_actors(self) -> None:
        """Name actors without an answer, each once in a while, also where others answer."""
        now_s = time.monotonic()
        slow = [actor for actor in self._asked.values() if now_s - self._asked_at_s[actor] > NOTICE_S]
        if not slow:
            return
        with self._naming_ray_errors():
            free = self._ray.available_resources().get("CPU", 0.0)
        names = ", ".join(map(str, slow))
        _log.warning("No answer for %.0f s from actor %s; the cluster has %g free cores", NOTICE_S, names, free)
        for actor in slow:
            self._asked_at_s[actor] = now_s

    def _begin(self) -> Any:
        seed = int(self._seeds.spawn(1)[0].generate_state(1)[0]) % 2**31
        with self._naming_ray_errors():
            return self._class.remote(str(self._folder), seed, max(1, int(self._cfg.cores_per_actor)))

    def _begin_again(self, actor: int, reason: str) -> None:
        self._lost[actor] += 1
        if self._lost[actor] > self._cfg.retries:
            raise GantryError(f"Actor {actor} was lost {self._lost[actor]} times in a row, the last time: {reason}")
        _log.warning("Actor %d was lost and begins again: %s", actor, reason)
        with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError, ValueError):
            self._ray.kill(self._handles[actor])  # It may live on where only the connection to it is lost.
        self._handles[actor] = self._begin()

    @contextlib.contextmanager
    def _naming_ray_errors(self) -> Iterator[None]:
        try:
            yield
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise GantryError(f"The connection to Ray at '{self._cfg.address}' failed: {reason_of(error)}") from error


def make_actor(folder: Path, seed: int) -> FleetActor:
    """Environments and policy of an actor, from the folder of its run.

    Args:
        folder: Of the run.
        seed: Of environments and noise.

    Raises:
        GantryError: As of the run's task.
    """
    run = replace(read_run(folder), device="cpu", seed=seed)
    cfg = settings_of(run)
    env = run.task.make_env(run.preset.env, "cpu", seed)
    policy = open_base(folder / BASE_FOLDER, run) if run.base else None
    learner = Learner(cfg.agent, env.obs_shapes, env.action_size, "cpu", seed)
    base = None if policy is None else make_base(policy, env.num_envs)
    return FleetActor(env, learner, base, torch.Generator(env.device).manual_seed(seed + 1))


class SimulatingActor:
    """Process of an actor: sets up the process it is in, and must have it for itself.

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
            torch.set_num_threads(1)
            torch.manual_seed(self._seed)
            with _plain_errors():
                self._actor = make_actor(self._folder, self._seed)
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


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except GantryError as error:
        raise GantryError(str(error)) from None
