"""The processes that `gantry launch` makes: they end together, none outlives the launcher, whoever that is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gantry_bringup import processes
from gantry_bringup.description import NodeSpec
from gantry_bringup.processes import NodeGroup
from gantry_fixtures.training import needs


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A Python package whose executables are the sources given to it; they say "up" when they run."""
    folder = tmp_path / "fake_nodes"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "__main__.py").write_text("import runpy, sys; runpy.run_module('fake_nodes.' + sys.argv[1])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def add(name: str, source: str) -> NodeSpec:
        (folder / f"{name}.py").write_text(f"import os, signal, sys, time\n{source}\n")
        return NodeSpec("fake_nodes", name, name)

    return add


POLITE = (
    "print('up', flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('bye')\n    sys.exit(0)"
)


def after(marker: Path) -> str:
    """Source that waits until the other node has said that it is ready."""
    return f"while not os.path.exists({str(marker)!r}):\n    time.sleep(0.01)\n"


def ready(marker: Path) -> str:
    """Source that tells the other node so."""
    return f"open({str(marker)!r}, 'w').close()\n"


def test_when_one_node_ends_all_end_and_its_exit_code_is_the_result(package, tmp_path):
    log, marker = tmp_path / "log", tmp_path / "ready"
    polite = (
        f"try:\n    {ready(marker)}    print('up', flush=True)\n    time.sleep(60)\n" + POLITE.partition("60)\n")[2]
    )
    with log.open("w") as stream:
        group = NodeGroup([package("stays", polite), package("fails", after(marker) + "sys.exit(3)")], stream)
        assert group.run() == 3
    assert group.exit_codes() == {"stays": 0, "fails": 3}
    lines = log.read_text().splitlines()
    assert "stays | bye" in lines
    assert "fails | ended with 3; stopping the rest" in lines


def test_a_node_that_ignores_every_request_is_killed(package, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 0.3)
    marker = tmp_path / "ready"
    deaf = "for n in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(n, signal.SIG_IGN)\n"
    with (tmp_path / "log").open("w") as stream:
        group = NodeGroup(
            [package("deaf", deaf + ready(marker) + "time.sleep(60)"), package("ends", after(marker))], stream
        )
        assert group.run() == 128 + signal.SIGKILL
    assert group.exit_codes() == {"deaf": -signal.SIGKILL, "ends": 0}


def launcher(package_spec: NodeSpec, log: Path) -> subprocess.Popen[str]:
    source = (
        "import sys\nfrom gantry_bringup.description import NodeSpec\nfrom gantry_bringup.processes import NodeGroup\n"
        f"sys.exit(NodeGroup([NodeSpec('fake_nodes', '{package_spec.executable}', 'node')]).run())"
    )
    with log.open("w") as stream:
        return subprocess.Popen([sys.executable, "-c", source], stdout=stream, stderr=subprocess.STDOUT, text=True)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_node_outlives_the_launcher_however_it_ends(package, tmp_path, number):
    log = tmp_path / "log"
    spec = package("node", "print('pid', os.getpid(), flush=True)\n" + POLITE)
    parent = launcher(spec, log)
    deadline_s = time.monotonic() + 30.0
    while "up" not in log.read_text():
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.02)
    pid = int(log.read_text().split("pid ")[1].split()[0])
    assert alive(pid)
    os.kill(parent.pid, number)
    parent.wait(30.0)
    while alive(pid):
        assert time.monotonic() < deadline_s, "the node is still there"
        time.sleep(0.02)


AS_FIRST_PROCESS = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")


def has_process_namespaces() -> bool:
    try:
        return subprocess.run([*AS_FIRST_PROCESS, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not has_process_namespaces(), reason="this machine grants no process namespaces")
def test_nodes_run_below_a_launcher_that_is_a_containers_first_process(package, tmp_path):
    """Whose number is that of whoever adopts orphans elsewhere."""
    spec = package("node", "print('parent', os.getppid(), flush=True)\nsys.exit(7)")
    source = (
        "import os, sys\nfrom gantry_bringup.description import NodeSpec\n"
        "from gantry_bringup.processes import NodeGroup\nprint('launcher', os.getpid(), flush=True)\n"
        f"sys.exit(NodeGroup([NodeSpec('fake_nodes', '{spec.executable}', 'node')]).run())"
    )
    done = subprocess.run(
        [*AS_FIRST_PROCESS, sys.executable, "-c", source], capture_output=True, text=True, timeout=120
    )
    assert "launcher 1\n" in done.stdout, done.stdout + done.stderr
    assert "node | parent 1\n" in done.stdout
    assert done.returncode == 7


def test_a_node_whose_launcher_is_gone_does_not_begin():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gantry_deploy.process.with_parent",
            "999999999",
            sys.executable,
            "-c",
            "print('begun')",
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (130, "")


@needs("rclpy")
def test_a_node_that_is_stopped_while_python_starts_says_one_line_and_no_traceback(tmp_path):
    delays_s = [0.0, 0.02, 0.05, 0.1, 0.15, 0.25]
    for delay_s in delays_s:
        with (tmp_path / "log").open("w") as stream:
            group = NodeGroup([NodeSpec("gantry_ros", "policy_node", "policy_node")], stream)
            group._start(group._specs[0])
            time.sleep(delay_s)
            group.stop()
        log = (tmp_path / "log").read_text()
        assert log == "policy_node | policy_node: interrupted while loading\n", delay_s
        assert group.exit_codes() == {"policy_node": 0}
