"""Parts of ``gantry session start``: learner, device, sinks, recording and page, as the options ask for them."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.cli.command import UsageError
from gantry_deploy.errors import LinkError

if TYPE_CHECKING:
    from gantry_deploy.bundle.bundle import Bundle
    from gantry_deploy.contract.policy_contract import PolicyContract
    from gantry_deploy.recording.recorder import Recorder
    from gantry_deploy.session.live import LearnerLink
    from gantry_deploy.session.parts import StepSink
    from gantry_deploy.session.run import SessionRun, Views
    from gantry_deploy.teleop.operator import TeleopDevice
    from gantry_hardware.model.spec import RobotSpec

KEYBOARD = "keyboard"
BUNDLE_S = 60.0
"""Longest wait for the learner's bundle and first weights, s."""


def connect_learner(args: argparse.Namespace, stack: contextlib.ExitStack) -> tuple[LearnerLink | None, Bundle]:
    """The connection to a learner, if one is asked for, and the bundle that is run."""
    from gantry_deploy.bundle.bundle import load_bundle

    if args.learner is None:
        return None, load_bundle(find_bundle(args.bundle))
    if args.bundle is not None:
        raise UsageError("With --learner the learner's own bundle is run; leave BUNDLE out.")
    from gantry_deploy.link.bundles import unpacked
    from gantry_deploy.link.certificates import tls_files
    from gantry_deploy.link.client import LinkClient, learner_status
    from gantry_deploy.session.live import LearnerLink

    tls = None if args.certificates is None else tls_files(args.certificates, args.identity)
    spool = args.spool or Path("gantry-spool") / args.identity
    hashed = learner_status(args.learner, tls).contract_sha256
    client = LinkClient(args.learner, args.identity, spool, contract_sha256=hashed, tls=tls)
    stack.callback(_close, client)
    deadline_s = time.monotonic() + BUNDLE_S
    while client.bundle is None or client.newest_parameters() is None:
        if time.monotonic() > deadline_s:
            raise LinkError(f"The learner at {args.learner} has sent no bundle and weights for {BUNDLE_S:.0f} s.")
        time.sleep(0.05)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gantry-session-")))
    bundle, live = unpacked(client.bundle, folder / "bundle")
    return LearnerLink(client, bundle, live, explore=not args.no_explore), bundle


def _close(client: Any) -> None:
    left = client.close()
    if left:
        print(f"{left} steps have not reached the learner; the next session with this spool sends them.")


def make_device(
    args: argparse.Namespace, contract: PolicyContract, own: Mapping[str, Callable[..., TeleopDevice]] | None = None
) -> TeleopDevice:
    """The operator's device, or several combined; those of ``own`` in place of the registry's."""
    from gantry_deploy.teleop.combined import CombinedDevice
    from gantry_deploy.teleop.registry import make_device as make

    names = args.device or [KEYBOARD]
    made = []
    for name in names:
        makes = (own or {}).get(name) or partial(make, name)
        made.append(makes(contract, **_device_options(args, name, len(names))))
    return made[0] if len(made) == 1 else CombinedDevice(made)


def _device_options(args: argparse.Namespace, name: str, count: int) -> dict[str, Any]:
    """Options of one device: those without a prefix belong to the only one."""
    found: dict[str, Any] = {}
    for key, value in args.device_option:
        prefix, _, own = key.rpartition(".")
        if prefix == name:
            found[own] = value
        elif not prefix and count == 1:
            found[key] = value
        elif not prefix:
            raise UsageError(f"--device-option {key}: there are several devices; write NAME.{key}.")
    return found


def open_sinks(
    args: argparse.Namespace, bundle: Bundle, link: LearnerLink | None, stack: contextlib.ExitStack
) -> list[StepSink]:
    """Receivers of steps: the learner and a dataset."""
    sinks: list[StepSink] = [] if link is None else [link]
    if args.dataset is not None:
        from gantry_deploy.dataset.notes import COMMAND, POLICY, make_session_notes
        from gantry_deploy.embodiments.operator_maps import make_operator_map
        from gantry_deploy.session.records.dataset import SessionDataset
        from gantry_deploy.session.records.dataset_sink import DatasetSink

        contract = bundle.contract
        task, resume = contract.provenance.task or "", (args.dataset / "meta" / "info.json").is_file()
        rate = round(contract.rate_hz)
        # Sizes are those of the first step: where commands are corrected, actions are commands.
        values = COMMAND if make_operator_map(contract).corrects_command else POLICY
        notes = make_session_notes(task, contract, values)
        dataset = SessionDataset(args.dataset, None, rate, contract.robot, task, notes=notes, resume=resume)
        sink = DatasetSink(dataset)
        stack.callback(sink.close)
        sinks.append(sink)
    return sinks


def open_recording(
    args: argparse.Namespace, bundle: Bundle, spec: RobotSpec, stack: contextlib.ExitStack
) -> Recorder | None:
    """The MCAP recording, if one is asked for."""
    if args.record is None:
        return None
    from gantry_deploy.recording.recorder import Recorder

    recorder = Recorder(args.record, bundle.contract, spec)
    stack.callback(recorder.close)
    return recorder


def open_page(
    args: argparse.Namespace,
    session: SessionRun,
    device: TeleopDevice,
    views: Views,
    stack: contextlib.ExitStack,
) -> None:
    """The terminal's view of the session, and the page if it is asked for."""
    from gantry_deploy.page.open import open_views

    open_views(session, device, views, args.page, stack)
