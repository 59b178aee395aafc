"""Real nodes for the tests: bundles, and processes in a DDS domain of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from gantry_deploy.testing.legs import contract_for, map_contract_for, tiny_bundle
from gantry_hardware.robots import robot_spec

ROBOT = "go2"
QUICK = {
    "safety__stand_duration_s": 0.1,
    "safety__state_timeout_s": 1.0,
    "safety__max_missed_deadlines": 1000,
    "connect_timeout_s": 20.0,
    "discovery_s": 0.2,
}
"""Policy parameters for tests: standing takes a moment, and a busy machine is no fault."""


OUTPUT_LINES = 30
"""Last lines of every node's output that a failed test shows."""

_open_rigs: list[Rig] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show with a failed test how each node of the open rigs is, and its last output."""
    report = yield
    if report.failed:
        for rig in _open_rigs:
            report.sections += [node_section(process) for process in rig.processes]
    return report


def node_section(process) -> tuple[str, str]:
    """Title and text of a failed test's report on one node."""
    state = "runs" if process.exit_code is None else f"ended with {process.exit_code}"
    return f"{process.executable} (pid {process.pid}): {state}", "\n".join(process.output.splitlines()[-OUTPUT_LINES:])


@contextmanager
def domain() -> Iterator[dict[str, str]]:
    """This process and its children alone in a random DDS domain."""
    from gantry_ros.testing import isolated_environment

    before = dict(os.environ)
    environment = isolated_environment()
    os.environ.update(environment)
    try:
        yield environment
    finally:
        os.environ.clear()
        os.environ.update(before)


class Rig:
    """A robot's node and an operator in one domain; policies come and go."""

    def __init__(self, environment, folder):
        from gantry_ros.testing import NodeProcess, Operator

        self._make = NodeProcess
        self._environment = environment
        self._folder = folder
        self.processes = []
        self.operator = Operator()

    def process(self, executable, **parameters):
        log = self._folder / f"{executable}{len(self.processes) + 1}.log"
        process = self._make(executable, self._environment, log, **parameters)
        self.processes.append(process)
        return process

    def robot(self, **parameters):
        robot = self.process("sim_robot_node", robot=ROBOT, backend="mock", rate_hz=100.0, **parameters)
        robot.wait_for_output("on backend 'mock'")
        return robot

    def policy(self, bundle, **parameters):
        return self.process("policy_node", bundle=str(bundle), **{**QUICK, **parameters})

    def bring_to_policy(self):
        """From whatever mode to POLICY; the requests that the mode does not grant are refused and tried again."""
        from gantry_ros.testing import wait_until

        def running():
            mode = self.operator.values("policy_node").get("mode", "")
            if mode == "POLICY":
                return True
            event = {"DAMP": "reset", "PASSIVE": "stand", "STAND": "start"}.get(mode)
            if event is not None:
                self.operator.ask(f"policy_node/{event}")
            return False

        wait_until(running, "mode POLICY")


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """Folder with bundles: ``good``; ``seeing``, which looks at a map and walks to goals; and ``explosive``, whose
    action overflows as soon as it is told to walk."""
    folder = tmp_path_factory.mktemp("bundles")
    contract = contract_for(robot_spec(ROBOT))
    tiny_bundle(folder / "good", contract)
    seeing = map_contract_for(robot_spec(ROBOT))
    # It stands whatever it sees.
    tiny_bundle(folder / "seeing", seeing, weight=np.zeros((seeing.observation_size, seeing.action_size)))
    weight = np.zeros((contract.observation_size, contract.action_size))
    # Single precision ends at 3.4e38: gravity alone stays below it and is clipped, with a command of 1 it overflows.
    gravity, command = 5, contract.observation_size - 5
    weight[gravity, 0], weight[command, 0] = 2e38, -2e38
    tiny_bundle(folder / "explosive", contract, weight=weight)
    return folder


@contextmanager
def make_rig(folder):
    with domain() as environment:
        rig = Rig(environment, folder)
        _open_rigs.append(rig)
        try:
            yield rig
        finally:
            _open_rigs.remove(rig)
        rig.operator.close()


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    """A rig for a whole module, without any node but the operator."""
    with make_rig(tmp_path_factory.mktemp("logs")) as rig:
        yield rig


@pytest.fixture
def new_rig(tmp_path):
    """Makes rigs, each in a domain where nobody remembers the nodes of the one before."""
    return lambda: make_rig(tmp_path)


@pytest.fixture
def own_rig(tmp_path):
    """A rig for one test that ends nodes on purpose."""
    with make_rig(tmp_path) as rig:
        yield rig
