"""Nodes as child processes: one command line each, their output with a prefix, and nobody left behind."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

from gantry_bringup.parts import NodeSpec, ParameterValue
from gantry_deploy.process.interrupts import starting_uninterrupted
from gantry_deploy.process.with_parent import ending_with_this
from gantry_ros.runtime.availability import child_environment

GRACE_S = 5.0
"""How long a node may take to end after SIGINT, and again after SIGTERM."""
POLL_S = 0.05
"""How often the nodes are looked at."""
OWN_PACKAGE = "gantry_ros"
"""Package of the nodes that call :func:`gantry_deploy.process.interrupts.end_on_interrupt` first."""


def node_command(spec: NodeSpec) -> list[str]:
    """The command line of one node, for the Python that runs this."""
    command = [sys.executable, "-m", spec.package, spec.executable]
    command += ["--ros-args", "-r", f"__node:={spec.name}"]
    if spec.namespace:
        command += ["-r", f"__ns:=/{spec.namespace.strip('/')}"]
    for topic, other in spec.remappings:
        command += ["-r", f"{topic}:={other}"]
    for path in spec.configs:
        command += ["--params-file", path]
    for name, value in spec.parameters.items():
        command += ["-p", f"{name}:={_yaml(value)}"]
    return command


class NodeGroup:
    """Starts nodes and keeps them together: when one ends, all end.

    Args:
        specs: In the order of their start; they are stopped in reverse.
        stream: Where their output goes.
    """

    def __init__(self, specs: Sequence[NodeSpec], stream: TextIO | None = None) -> None:
        self._specs = list(specs)
        self._stream = stream or sys.stdout
        self._children: list[tuple[str, subprocess.Popen[str]]] = []
        self._readers: list[threading.Thread] = []
        self._ended: list[str] = []
        self._asked_to_stop = threading.Event()

    def run(self) -> int:
        """Run until a node ends or this process is asked to.

        Returns:
            Exit code of the node that ended first, else the first one that is not 0; 0 if this process was asked to
            stop and every node ended well.

        Raises:
            KeyboardInterrupt: After Ctrl-C, when all nodes are gone.
        """
        before = signal.signal(signal.SIGTERM, lambda number, frame: self._asked_to_stop.set())
        try:
            for spec in self._specs:
                self._start(spec)
            self._wait()
        finally:
            # A second Ctrl-C must not interrupt the stopping, or nodes would stay behind.
            interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
            self.stop()
            signal.signal(signal.SIGINT, interrupt)
            signal.signal(signal.SIGTERM, before)
        return self._exit_code()

    def stop(self) -> None:
        """Ask every node to end, last started first, and insist where that does not help."""
        for name, child in reversed(self._children):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                if child.poll() is not None:
                    break
                if number is not signal.SIGINT:
                    self._say(name, f"does not end, sending {number.name}")
                child.send_signal(number)
                try:
                    child.wait(GRACE_S)
                except subprocess.TimeoutExpired:
                    continue
        for reader in self._readers:
            reader.join(GRACE_S)

    def exit_codes(self) -> dict[str, int | None]:
        """Exit code of every node by name; negative for a signal, None while it runs."""
        return {name: child.poll() for name, child in self._children}

    def _start(self, spec: NodeSpec) -> None:
        own = spec.package == OWN_PACKAGE  # Another one's program may never ask for the signal.
        with starting_uninterrupted() if own else contextlib.nullcontext():
            child = subprocess.Popen(
                ending_with_this(node_command(spec)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                bufsize=1,
                env={**child_environment(), "PYTHONUNBUFFERED": "1", **spec.environment},
                # Ctrl-C reaches this process alone, which then stops the nodes in order.
                start_new_session=True,
            )
        reader = threading.Thread(target=self._forward, args=(spec.name, child), daemon=True)
        reader.start()
        self._children.append((spec.name, child))
        self._readers.append(reader)

    def _wait(self) -> None:
        while not self._asked_to_stop.is_set():
            for name, child in self._children:
                if child.poll() is not None:
                    self._ended.append(name)
                    self._say(name, f"ended with {child.returncode}; stopping the rest")
                    return
            time.sleep(POLL_S)

    def _exit_code(self) -> int:
        codes = self.exit_codes()
        order = [*self._ended, *(name for name in codes if name not in self._ended)]
        code = next((codes[name] for name in order if codes[name]), 0) or 0
        return 128 - code if code < 0 else code

    def _forward(self, name: str, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self._say(name, line.rstrip("\n"))

    def _say(self, name: str, text: str) -> None:
        width = max(len(spec.name) for spec in self._specs)
        self._stream.write(f"{name:<{width}} | {text}\n")
        self._stream.flush()


def _yaml(value: ParameterValue) -> str:
    """A parameter's value such that ROS reads back the same type; JSON is YAML, and quotes keep text text."""
    return json.dumps(value, ensure_ascii=False)
