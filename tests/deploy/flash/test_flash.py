"""Releases over a real SSH server: success, return, rollback, and one flash at a time."""

import json
import shutil

import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.channel import CutError
from gantry_deploy.flash.returning import return_on_request
from gantry_deploy.flash.sending import Attempt, Outcome, Plan
from gantry_deploy.flash.ssh import Connection
from gantry_fixtures.flashing import GANTRY, FlashRobot
from gantry_fixtures.ssh_server import SshServer, find_sshd


def test_from_setup_to_a_good_release_with_commands_alone(tmp_path, server, monkeypatch, capsys):
    robot = FlashRobot(tmp_path, server)
    robot.home.keys_file.unlink()
    monkeypatch.setenv("GANTRY_KEYS", str(tmp_path / "mine"))
    there = ["--ssh-config", server.client_config(), "--gantry", GANTRY, "--home", str(robot.home.root)]
    bundle = str(robot.bundle("walk", signed=None))

    def gantry(*words, code=0):
        assert main([str(word) for word in words]) == code, capsys.readouterr().err
        return capsys.readouterr().out

    assert "kept" in gantry("flash", "--setup", "robot", "--robot", "go2", "--backend", "mock", *there)
    gantry("keys", "new", "lab")
    assert (tmp_path / "mine" / "lab.key").stat().st_mode & 0o777 == 0o600
    assert "trusted as a development key" in gantry("keys", "trust", "lab", "--host", "robot", *there)
    assert robot.home.keys_file.stat().st_mode & 0o777 == 0o600
    gantry("sign", bundle, "--key", "lab")
    with robot.service():
        out = gantry("flash", bundle, "robot", *there, "--json", str(tmp_path / "out.json"))
        outcome = json.loads((tmp_path / "out.json").read_text())
        assert outcome["state"] == "good"
        assert "good:" in out
        names = [stage["name"] for stage in outcome["stages"]]
        assert names == [
            *("copy", "signature", "manifest", "contract", "network", "observation", "joint targets", "memory"),
            *("latency", "middleware"),
        ]
        listed = gantry("flash", "--list", "robot", *there)
    assert f"* {outcome['release'][:12]}  good" in listed
    assert robot.check_current() == outcome["release"]
    good = next(line for line in robot.home.log() if line["what"] == "switched")
    assert "@" in good["by"]
    assert good["release"] == outcome["release"]
    assert good["time_utc"].endswith("+00:00")


@pytest.mark.soak
@pytest.mark.skipif(find_sshd() is None, reason="no sshd here; the other tests ran with asyncssh already")
def test_the_other_server_does_as_well(tmp_path, robot):
    pytest.importorskip("asyncssh")
    release = robot.release(robot.bundle("walk"))
    with SshServer(tmp_path / "asyncssh", "asyncssh") as other:
        outcome = robot.flash(release, target=robot.target(other.client_config()), no_return=True)
    assert outcome.state == "waiting"
    assert robot.check_current() == release.manifest.release


def test_a_release_that_fails_its_first_seconds_is_returned_from(robot):
    first, second = robot.release(robot.bundle("walk")), robot.release(robot.bundle("fall", fails=True))
    robot.install(first)
    with robot.service():
        robot.wait_for_rest()
        outcome = robot.flash(second)
        assert outcome.state == "returned"
        assert "the robot was damped" in outcome.text
        assert "not finite" in outcome.text or "finite" in outcome.text
        assert robot.check_current() == first.manifest.release
        assert second.manifest.release in robot.home.state().failed
        # The service runs the last good one again, with nobody's help.
        robot.wait(lambda: "running " + first.manifest.release[:12] in robot.service_log(), "the good release")
    assert robot.whats()[-1] == "returned"


def test_rollback_returns_to_the_release_before_and_forth_again(robot, capsys):
    first, second = (robot.release(robot.bundle(f"walk{i}", seed=i)) for i in range(2))
    names = [robot.install(first), robot.install(second)]
    there = ["--ssh-config", robot.server.client_config(), "--gantry", GANTRY, "--home", str(robot.home.root)]
    assert main(["flash", "--rollback", "robot", *there]) == 0
    assert f"back to {names[0][:12]}" in capsys.readouterr().out
    assert robot.check_current() == names[0] == robot.home.last_good()
    assert robot.whats()[-1] == "rolled back"
    assert return_on_request(robot.home, "test", robot.lines.append) == names[1] == robot.check_current()
    shutil.rmtree(robot.home.releases / names[0])
    with pytest.raises(FlashError, match=names[0][:12]):
        return_on_request(robot.home, "test", robot.lines.append)
    assert robot.check_current() == names[1]


def begun(robot, release):
    """A connection over which a flash has begun; the SSH server of a busy machine may close one before it answers."""
    for _ in range(5):
        connection = Connection(robot.target(), ["onboard", "receive"])
        plan = Plan(release, robot.target(), no_return=True)
        attempt = Attempt(plan, connection, Outcome(""), robot.lines.append, "a")
        try:
            attempt.ask()
            assert attempt.preflight()
            return connection
        except CutError:
            connection.close()
    raise AssertionError(f"five connections were cut: {robot.lines}")


def test_the_second_of_two_flashes_is_refused_with_who_is_first(robot):
    release, other = (robot.release(robot.bundle(f"walk{i}", seed=i)) for i in range(2))
    with begun(robot, release) as first:
        first.channel.receive("have")
        with pytest.raises(FlashError, match=rf"@.* has been flashing {release.manifest.release[:12]} since 20"):
            robot.flash(other, no_return=True)
    assert robot.home.current() == ""
    # The first one hung up in the middle, and keeps nobody out.
    assert robot.flash(other, no_return=True, retries=20).state == "waiting"
    assert robot.check_current() == other.manifest.release
