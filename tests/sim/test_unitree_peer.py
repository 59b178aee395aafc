"""The manufacturer's compiled SDK as the other side, in both directions: what it accepts and refuses, counted.

It has another implementation of messages and checksum, and the release of Cyclone DDS that the robots have; a type
description that this release does not know would crash it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cyclonedds")

import gantry_fixtures
from gantry_deploy.process.domains import free_domain
from gantry_fixtures.unitree import patient_fake

pytestmark = pytest.mark.slow
PACKAGE = "far-unitree-sdk==0.1.8"
PEER = Path(gantry_fixtures.__file__).with_name("unitree_peer.py")


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    """Folder with the SDK, which knows domain 0 alone and is therefore given ports of its own."""
    folder = tmp_path_factory.mktemp("sdk")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
    return folder


@pytest.fixture
def ports(monkeypatch):
    """Base of the DDS ports, for this process's children: those of a domain that no other test has."""
    base = 7400 + 250 * free_domain()
    print("ports", base)
    monkeypatch.setenv("CYCLONEDDS_URI", f"<CycloneDDS><Domain id='any'>{port_settings(base)}</Domain></CycloneDDS>")
    return base


def port_settings(base):
    return f"<Discovery><Ports><Base>{base}</Base></Ports></Discovery>"


def peer(sdk, ports, *arguments):
    """The SDK in a process of its own, ready."""
    config = (
        '<CycloneDDS><Domain Id="any"><General><Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>'
        f"<AllowMulticast>false</AllowMulticast></General><Discovery><Ports><Base>{ports}</Base></Ports>"
        "<ParticipantIndex>auto</ParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery>"
        "</Domain></CycloneDDS>"
    )
    role, name, seconds = arguments
    environment = {**os.environ, "PYTHONPATH": str(sdk)}
    environment.pop("CYCLONEDDS_URI", None)
    process = subprocess.Popen(
        [sys.executable, str(PEER), role, name, config, seconds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    for line in process.stdout:
        if "ready" in line:
            return process
    raise AssertionError(f"the SDK ended with {process.wait()}")


def result(process):
    """Its counts, and how often it complained of a checksum; a robot ends now, a client at its time."""
    process.stdin.close()
    said = process.stdout.read().splitlines()
    assert process.wait() == 0, f"the SDK ended with {process.returncode}: {said[-5:]}"
    process.stdout.close()
    return json.loads(next(line for line in said if line.startswith('{"'))), sum("CRC" in line for line in said)


@pytest.mark.parametrize("name", ["go2", "g1"])
def test_the_sdk_reads_the_fakes_states_and_the_fake_obeys_the_sdks_commands(sdk, ports, name):
    fake = patient_fake(name, "--mode", "none", domain=0)
    try:
        counts, complaints = result(peer(sdk, ports, "client", name, "3"))
        report = fake.report()
        assert complaints == 0
        assert counts["states"] > 100, counts
        assert np.linalg.norm(counts["quat"]) == pytest.approx(1.0, abs=1e-3)
        refused = sum(report["commands"]["refused"].values()) if name == "go2" else 0
        print(name, "states read", counts["states"], "commands", report["commands"], report["violations"])
        assert (report["commands"]["accepted"] > 100, refused) == (True, 0)

        fake.say("fault crc")
        counts, complaints = result(peer(sdk, ports, "client", name, "2"))
        print(name, "with wrong checksums: states read", counts["states"], "complaints", complaints)
        assert counts["states"] == 0
        assert complaints > 100
    finally:
        fake.close()


DRIVE = """
import json, sys
from gantry_hardware import JointCommand
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree import robot as module
from gantry_hardware.unitree.codec import CommandCodec

if sys.argv[2] == "wrong":  # The last byte of the message is one of the checksum.
    encode = CommandCodec.encode
    CommandCodec.encode = lambda self, *given: encode(self, *given)[:-1] + b"x"
spec = robot_spec(sys.argv[1])
robot = module.UnitreeRobot(
    spec,
    interface="lo",
    domain=0,
    silent_writers=True,
    min_battery_percent=0.0,
    connect_timeout_s=20.0,
    guard_timeout_s=1.0,
    frozen_after_s=2.0,
)
robot.connect()
robot.take_over()
for _ in range(100):
    robot.write(JointCommand.position(spec, spec.array("default_rad")))
    robot.sleep_until(robot.now_s() + 0.02)
print(json.dumps({"fault": robot.fault(), **robot.health()}))
robot.close()
"""


@pytest.mark.parametrize("name", ["go2", pytest.param("g1", marks=pytest.mark.soak)])
def test_the_driver_reads_the_sdks_states_and_the_sdk_takes_the_drivers_commands(sdk, ports, name):
    heard = {}
    for kind in ("right", "wrong"):
        robot = peer(sdk, ports, "robot", name, "0")
        driver = subprocess.run([sys.executable, "-c", DRIVE, name, kind], capture_output=True, text=True, check=False)
        assert driver.returncode == 0, driver.stderr
        told = json.loads(driver.stdout)
        counts, _ = result(robot)
        print(name, kind, "states", told["states"], "crc errors", told["crc_errors"], "heard", counts["heard"])
        assert told["fault"] is None
        assert told["states"] > 100
        assert told["crc_errors"] == 0
        heard[kind] = counts["heard"]
        if kind == "right":
            assert max(counts["last"]["kp"]) > 0.0
    assert heard["right"] > 100
    assert heard["wrong"] == 0
