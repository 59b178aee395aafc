"""Actor and learner of the link without a robot and without learning, each a process of its own.

``python -m gantry_deploy.testing.link learner ...`` and ``... actor ...``; tests, ``gantry bench corrections`` and
``scripts/measure/link_kills.py`` start, kill and count them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gantry_deploy.link.certificates import tls_files
from gantry_deploy.link.client import LinkClient
from gantry_deploy.link.limits import LINK_LIMITS, LinkLimits
from gantry_deploy.link.server import LinkServer
from gantry_deploy.session.snapshot import LearnerFacts
from gantry_deploy.session.steps import Actor, SessionStep
from gantry_hardware.files.json_file import parse_json_object

CONTRACT = "c0" * 32
"""SHA-256 of the contract unless another is given."""
LENGTH = 100
"""Steps of an attempt."""
POLL_S = 0.002
"""Period at which an actor looks what was acknowledged, s."""


def made_step(number: int, run: int = 0, image_px: int = 84) -> SessionStep:
    """A step whose numbers say which one it is.

    Args:
        number: Number of the step in its process, from 0; ``stamp_s`` and the first of ``state`` are that many seconds.
        run: Number of the process, in the second of ``state``.
        image_px: Height and width of its two images; 0 for none.
    """
    state = np.zeros(16, np.float32)
    state[:2] = number, run
    obs: dict[str, np.ndarray] = {"state": state}
    if image_px:
        for camera in ("front", "wrist"):
            obs[f"image/{camera}"] = np.full((3, image_px, image_px), number % 251, np.uint8)
    is_last = number % LENGTH == LENGTH - 1
    return SessionStep(
        episode=number // LENGTH,
        index=number % LENGTH,
        stamp_s=float(number),
        obs=obs,
        action=np.full(7, 0.5, np.float32),
        policy_action=np.full(7, 0.25, np.float32),
        actor=Actor.PERSON if number % 10 == 0 else Actor.POLICY,
        reward=float(is_last),
        truncated=is_last,
        last_obs=obs if is_last else None,
    )


class Lines:
    """Lines of a file, each of which is in the kernel's hands when the call returns, so that a kill loses none.

    Args:
        path: The file; begun if missing.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, text: str) -> None:
        """Write lines; a line feed is added."""
        os.write(self._file, f"{text}\n".encode())


class CountingSink:
    """Sink that notes actor, process and number of each step, one line each.

    Args:
        path: File of the lines.
    """

    def __init__(self, path: str | Path) -> None:
        self._lines, self.count = Lines(path), 0

    def take(self, actor: str, steps: Sequence[SessionStep]) -> None:
        """See :class:`~gantry_deploy.link.journals.learner_journal.StepSink`."""
        self.count += len(steps)
        self._lines.write(
            "\n".join(f"{actor} {int(step.obs['state'][1])} {int(step.obs['state'][0])}" for step in steps)
        )


def learner_command(address: str, journal: Path, log: Path, *options: str) -> list[str]:
    """Command line of a learner; see :func:`main`."""
    return [sys.executable, "-m", __name__, "learner", address, str(journal), "--log", str(log), *options]


def actor_command(address: str, identity: str, spool: Path, log: Path, *options: str) -> list[str]:
    """Command line of an actor; see :func:`main`."""
    return [
        *[sys.executable, "-m", __name__, "actor", address, str(spool)],
        *["--identity", identity, "--log", str(log), *options],
    ]


def start(command: list[str], errors: Path) -> subprocess.Popen[bytes]:
    """Start a process whose log goes to the end of a file."""
    with errors.open("ab") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def _limits(text: str) -> LinkLimits:
    return replace(LINK_LIMITS, **parse_json_object(text, "--limits"))


def _fill_disk(file_bytes: int) -> None:
    """Let no file of this process grow beyond a size until SIGUSR1 comes."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, most))
    signal.signal(signal.SIGUSR1, lambda *_: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))


def _run_learner(args: argparse.Namespace, ended: threading.Event) -> None:
    sink = CountingSink(args.log)
    bundle = {"policy.onnx": b"0123456789" * 300_000, "contract.json": b"{}"}
    with LinkServer(
        args.address,
        args.folder,
        sink,
        {"weight": np.zeros(100, np.float32)},
        contract_sha256=args.contract,
        bundle=bundle,
        tls=tls_files(args.tls, "learner") if args.tls else None,
        limits=_limits(args.limits),
    ) as server:
        Lines(f"{args.log}.address").write(server.address)
        count = 0
        while not ended.wait(args.publish_s or 0.1):
            count += 1
            server.tell(LearnerFacts(updates=count, transitions=sink.count, text="counting"))
            if args.publish_s:
                with contextlib.suppress(Exception):  # A full disk; the log says so.
                    server.publish({"weight": np.full(100, count, np.float32)})


def _run_actor(args: argparse.Namespace, ended: threading.Event) -> None:
    lines, begun = Lines(args.log), deque[tuple[int, float]]()
    latencies_s: list[float] = []
    client = LinkClient(
        args.address,
        args.identity,
        args.folder,
        contract_sha256=args.contract,
        tls=tls_files(args.tls, args.identity) if args.tls else None,
        limits=_limits(args.limits),
    )
    start_s, offered, acknowledged, version, said = time.monotonic(), 0, 0, 0, ""
    while not ended.is_set() and acknowledged < args.steps:
        now_s = time.monotonic()
        is_due = not args.rate_hz or now_s - start_s >= offered / args.rate_hz
        if is_due and offered < args.steps and offered - acknowledged < args.window:
            taken = client.offer(made_step(offered, args.run, args.image_px))
            begun.append((offered + 1, now_s))
            lines.write(f"offered {offered}" if taken else f"dropped {offered}")
            offered += 1
        else:
            ended.wait(POLL_S)
        if client.acknowledged > acknowledged:
            acknowledged = client.acknowledged
            lines.write(f"acknowledged {acknowledged}")
            while begun and begun[0][0] <= acknowledged:
                latencies_s.append(now_s - begun.popleft()[1])
        parameters, facts = client.newest_parameters(), client.facts()
        if parameters is not None and parameters.version != version:
            version = parameters.version
            lines.write(f"parameters {version} {float(parameters.tensors()['weight'][0]):g}")
            client.report_applied(version, parameters.sha256)
        state = f"{'connected' if facts.connected else 'apart'} {'replaced' if client.is_replaced else ''} {facts.text}"
        if state != said:
            said = state
            lines.write(f"state {time.monotonic():.3f} {state}")
    seconds = time.monotonic() - start_s
    left = client.close(args.close_s)
    bundle = {name: len(data) for name, data in (client.bundle or {}).items()}
    result = {"left": left, "acknowledged": client.acknowledged, "seconds": seconds, "bundle": bundle}
    if latencies_s:
        result |= {f"p{share}_s": float(np.percentile(latencies_s, share)) for share in (50, 99)}
    lines.write(f"result {json.dumps(result)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gantry_deploy.testing.link")
    sub = parser.add_subparsers(dest="role", required=True)
    for role in ("learner", "actor"):
        own = sub.add_parser(role)
        own.add_argument("address")
        own.add_argument("folder")
        own.add_argument("--log", required=True)
        own.add_argument("--contract", default=CONTRACT)
        own.add_argument("--tls", default="")
        own.add_argument("--limits", default="{}")
        own.add_argument("--file-bytes", type=int, default=0)
    learner, actor = sub.choices["learner"], sub.choices["actor"]
    learner.add_argument("--publish-s", type=float, default=0.0)
    actor.add_argument("--identity", required=True)
    actor.add_argument("--run", type=int, default=0)
    actor.add_argument("--steps", type=int, default=10**9)
    actor.add_argument("--rate-hz", type=float, default=0.0)
    actor.add_argument("--window", type=int, default=1000)
    actor.add_argument("--image-px", type=int, default=84)
    actor.add_argument("--close-s", type=float, default=5.0)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a learner until SIGTERM, or an actor until it has sent its steps or SIGTERM comes.

    A learner's file holds a line per step that its sink has taken. An actor's file holds what it has offered, what was
    acknowledged, parameters that came, and changes of the connection with their monotonic time. ``--file-bytes`` is the
    largest file that the process may write until SIGUSR1 comes, which stands for a full disk.
    """
    args = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    if args.file_bytes:
        _fill_disk(args.file_bytes)
    (_run_learner if args.role == "learner" else _run_actor)(args, ended)
    return 0


if __name__ == "__main__":
    sys.exit(main())
