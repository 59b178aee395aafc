"""A training whose steps come from actors elsewhere: the learner's side of a correction session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from gantry_deploy.link.bundles import contract_sha256, session_files
from gantry_deploy.link.server import LinkServer
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_policies.common.checkpoint import list_checkpoints
from gantry_policies.corrections.feed import StepStream
from gantry_policies.corrections.live import live_graph
from gantry_policies.corrections.trainer import StreamTrainer
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.training.algorithms.registry import TrainedPolicy
from gantry_sim.training.link.listen import Listen
from gantry_sim.training.run_cfg import RunCfg
from gantry_sim.training.run_files import LINK_FOLDER
from gantry_sim.training.run_folder import algorithm_of
from gantry_sim.training.run_validation import RunError

Export = Callable[[RunCfg, Path, TrainedPolicy, Path], Path]
"""Writer of a bundle: (run, its folder, the policy, where) -> where."""
SESSION_BUNDLE = "session-bundle"
"""Folder of a run: the bundle that actors begin with."""


@contextlib.contextmanager
def listening_trainer(
    run: RunCfg, folder: Path, listen: Listen, export: Export
) -> Iterator[tuple[StreamTrainer, LinkServer]]:
    """The training of a run and the server that its actors talk to; both end with the context.

    ``export`` writes the bundle that actors begin with. What earlier processes of the run have acknowledged is given to
    the training again.

    Raises:
        RunError: If the algorithm collects by itself alone, or the task has no contract.
        LinkError: If address, certificates or folder are refused.
    """
    algorithm = algorithm_of(run)
    if algorithm.make_stream_trainer is None:
        raise RunError(f"Algorithm '{algorithm.name}' cannot learn from the steps of actors; leave out --listen.")
    if not run.task.has_contract:
        raise RunError(f"Task '{run.task.name}' has no contract, which actors need; leave out --listen.")
    stream, servers = StepStream(), []
    with torch_threads(1):
        torch.manual_seed(run.seed)
        trainer = algorithm.make_stream_trainer(
            run,
            folder,
            stream,
            lambda weights: servers[0].publish(weights),
            lambda facts: servers[0].tell(facts),
        )
        assert isinstance(trainer, StreamTrainer)
        begun = bool(list_checkpoints(folder / CHECKPOINTS))
        trainer.prepare()
        bundle = _session_bundle(run, folder, trainer, begun, export)
        graph = live_graph(trainer.learner)
    files = session_files(bundle, graph)
    place, hashed = folder / LINK_FOLDER, contract_sha256(files)
    server = LinkServer(listen.address, place, stream, contract_sha256=hashed, bundle=files, tls=listen.tls)
    servers.append(server)
    try:
        if begun:
            trainer.resume()
        trainer.publish()
        yield trainer, server
    finally:
        server.close()


def _session_bundle(run: RunCfg, folder: Path, trainer: StreamTrainer, begun: bool, export: Export) -> Path:
    """The bundle that actors begin with: the policy before any learning. It stays the same when a run is resumed."""
    bundle = folder / SESSION_BUNDLE
    if not bundle.is_dir():
        if not begun:
            trainer.save_checkpoint()
        trained = algorithm_of(run).open(run, folder, None)
        export(run, folder, trained, bundle)
    return bundle
