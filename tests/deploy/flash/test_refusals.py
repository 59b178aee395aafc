"""What a robot refuses, over a real SSH server, and that it stays as it was."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace
from datetime import date, timedelta

import pytest

from gantry_deploy.bundle.keys import TrustedKeys, make_key
from gantry_deploy.cli.main import main
from gantry_deploy.errors import BundleError, FlashError
from gantry_deploy.flash.acceptance import signed_by
from gantry_deploy.flash.home import utc_now
from gantry_deploy.flash.preflight import Request, partial_sizes, preflight, safe_to_switch
from gantry_deploy.flash.release import make_release, parse_manifest
from gantry_deploy.flash.status import Status, unsafe_reason
from gantry_deploy.process.identity import process_identity
from gantry_fixtures.flashing import GANTRY, FlashRobot


@pytest.fixture(scope="module")
def settled(tmp_path_factory, server):
    """A robot with a good release and a service at rest; tests must leave it as it was."""
    robot = FlashRobot(tmp_path_factory.mktemp("settled"), server)
    robot.install(robot.release(robot.bundle("first")))
    with robot.service():
        robot.wait_for_rest()
        yield robot


@pytest.fixture
def robot(settled):
    before, config = settled.home.current(), settled.home.robot_file.read_text()
    settled.lines.clear()
    yield settled
    settled.home.robot_file.write_text(config)
    assert settled.check_current() == before == settled.home.last_good()


def refused(robot, release, name, text, **options):
    """Refused by the preflight for exactly one reason, and nothing was copied."""
    robot.lines.clear()
    with pytest.raises(FlashError) as refusal:
        robot.flash(release, **options)
    assert f"Refused before anything was copied: {name}." in str(refusal.value), robot.lines
    line = next((line for line in robot.lines if f"NO  {name}" in line), "")
    assert text in line, line
    assert not (robot.home.incoming / release.manifest.release).exists()


def test_another_robots_policy(robot):
    release = robot.release(robot.bundle("go1", robot="go1"))
    refused(robot, release, "robot", "the policy is for 'go1', and this robot is 'go2'")


def test_signatures_that_do_not_count(robot):
    release = robot.release(robot.bundle("signed"))
    make_key(robot.keys, "stranger")
    strange = robot.release(robot.bundle("strange", signed="stranger"))
    refused(robot, strange, "signature", "signed by a key that is not trusted here; known: lab")
    text = robot.home.keys_file.read_text()
    TrustedKeys(robot.home.keys_file).expire("lab", date.today() - timedelta(days=2))
    refused(robot, release, "signature", "signed by 'lab', which expired on 20")
    robot.home.keys_file.write_text(text)


def judged(robot, release):
    return signed_by(robot.home, robot.home.config(), release.manifest, release.bundle_manifest)


def test_more_signatures_that_do_not_count(robot):
    release, plain = robot.release(robot.bundle("signed2")), robot.release(robot.bundle("plain", signed=None))
    assert judged(robot, release).startswith("signed by 'lab' (development, until 20")
    with pytest.raises(FlashError, match="It is not signed"):
        judged(robot, plain)
    robot.configure(accept=["release"])
    with pytest.raises(FlashError, match="is a development key, and this robot accepts: release"):
        judged(robot, release)
    robot.configure(allow_unsigned=True)
    assert judged(robot, plain).startswith("accepted as robot.yaml allows")
    robot.configure(accept=["development"], allow_unsigned=False)
    text = robot.home.keys_file.read_text()
    TrustedKeys(robot.home.keys_file).revoke("lab", utc_now())
    with pytest.raises(FlashError, match="signed by 'lab', which was revoked on 20"):
        judged(robot, release)
    with pytest.raises(BundleError, match=r"Key 'lab' was revoked .* make a new one"):
        robot.trust("lab")
    robot.home.keys_file.write_text(text)


def test_a_signed_bundle_does_not_vouch_for_what_comes_beside_it(robot, tmp_path):
    site = tmp_path / "site.yaml"
    site.write_text("speed_m_s: 0.5\n")
    bundle = robot.bundle("beside")
    with pytest.raises(FlashError, match=r"It is not signed.*gantry flash --key NAME"):
        judged(robot, robot.release(bundle, configs=[site]))
    whole = robot.release(bundle, configs=[site], key="lab")
    assert judged(robot, whole).startswith("signed by 'lab'")
    # A release that was changed after it was signed: the name of the site's file, say.
    forged = replace(whole, manifest=parse_manifest(whole.manifest.text.replace(b"site.yaml", b"evil.yaml")))
    with pytest.raises(FlashError, match="signed by a key that is not trusted here"):
        judged(robot, forged)
    # Nor does the signature of one bundle count for another one that is sent in its place.
    other = robot.release(robot.bundle("other", signed=None, seed=3))
    with pytest.raises(FlashError, match="manifest is another one"):
        signed_by(robot.home, robot.home.config(), other.manifest, whole.bundle_manifest)


def test_a_bundle_that_was_changed_after_it_was_sealed(robot):
    bundle = robot.bundle("changed")
    data = bytearray((bundle / "policy.onnx").read_bytes())
    data[100] ^= 1
    (bundle / "policy.onnx").write_bytes(bytes(data))
    with pytest.raises(BundleError, match=r"'policy\.onnx' was changed after the bundle was sealed"):
        make_release(bundle)


def test_a_file_that_is_damaged_on_its_way(robot):
    release = robot.release(robot.bundle("way", seed=5))
    model = release.contents["bundle/policy.onnx"]
    assert isinstance(model, bytes)
    sent = replace(release, contents={**release.contents, "bundle/policy.onnx": bytes(len(model))})
    with pytest.raises(FlashError, match=r"bundle/policy\.onnx did not arrive as sent, and was removed"):
        robot.flash(sent)
    incoming = robot.home.incoming / release.manifest.release
    assert not (incoming / "bundle/policy.onnx").exists()
    assert (incoming / "bundle/golden.npz").exists()
    # A rest of an earlier copy that a power cut has damaged is noticed as well, and the next flash is none the wiser.
    (incoming / "bundle/policy.onnx").write_bytes(bytes(50))
    with pytest.raises(FlashError, match="did not arrive as sent"):
        robot.flash(release)
    assert not (robot.home.releases / release.manifest.release).exists()
    shutil.rmtree(incoming)


def test_a_policy_that_does_not_repeat_what_it_did_in_training(robot):
    from gantry_deploy.bundle.bundle import load_bundle, sign_bundle, write_bundle

    good = load_bundle(robot.bundle("numbers", seed=6))
    golden = {**good.golden, "action": good.golden["action"] + 0.01}
    folder = write_bundle(
        robot.folder / "bundles" / "wrong", contract=good.contract, model_bytes=good.model_bytes, golden=golden
    )
    sign_bundle(folder, robot.key())
    release = robot.release(folder)
    with pytest.raises(FlashError, match=r"Recorded and computed actions? differ"):
        robot.flash(release)
    assert not (robot.home.releases / release.manifest.release).exists()


def findings(robot, release, **changes):
    """Names and texts of what the preflight finds wrong, without the way there."""
    request = Request(release.manifest, release.contract, release.bundle_manifest, time.time())
    found = preflight(robot.home, replace(request, **changes), time.time())
    return {finding.name: finding.text for finding in found if not finding.passed}


def test_another_runtime_and_another_clock(robot):
    release = robot.release(robot.bundle("runtime"))
    assert findings(robot, release) == {}
    robot.configure(allow_unsigned=True)
    text = release.manifest.text.replace(b'"version": "', b'"version": "99.')
    wrong = findings(robot, replace(release, manifest=parse_manifest(text)))
    assert wrong.keys() == {"runtime"}
    assert "the release is for runtime 99." in wrong["runtime"]
    wrong = findings(robot, release, now_s=time.time() - 1000.0)
    assert wrong.keys() == {"clock"}
    assert "ahead of yours" in wrong["clock"]
    robot.configure(run={"backend": "mok"})
    wrong = findings(robot, release)
    assert wrong["run"] == "backend 'mok' is not installed here. Is it 'mock'?"
    assert "could not be returned to: Unknown robot backend 'mok'" in wrong["return"]


def test_while_a_policy_runs_or_the_robot_says_no(robot):
    release = robot.release(robot.bundle("busy"))
    before = robot.home.status_file.read_text()
    try:
        # The status of a process that runs: of this one.
        robot.home.status_file.write_text(status_text("POLICY", 0.0))
        refused(robot, release, "safe", "a policy is running")
        for mode, age_s, text in (
            ("STAND", 0.0, "the robot is in STAND"),
            ("DAMP", 0.0, "the robot is in DAMP"),
            ("PASSIVE", 1600.0, "has not said anything for 10"),
            ("PASSIVE", 0.0, ""),
        ):
            robot.home.status_file.write_text(status_text(mode, age_s))
            assert text in unsafe_reason(robot.home.status_file)
            assert bool(text) == bool(unsafe_reason(robot.home.status_file))
    finally:
        robot.home.status_file.write_text(before)
    robot.configure(safe_command=[sys.executable, "-c", "print('not on the stand'); raise SystemExit(1)"])
    with pytest.raises(FlashError, match=r"'safe_command' says no \(not on the stand\)"):
        safe_to_switch(robot.home, robot.home.config())
    robot.configure(safe_command=[sys.executable, "-c", "print('on the stand')"])
    assert "on the stand" in safe_to_switch(robot.home, robot.home.config())


def status_text(mode, age_s):
    status = Status(process_identity(), mode, "", 1, 0, time.monotonic() + 600.0 - age_s)
    return json.dumps(asdict(status))


def test_rollback_that_could_not_work(robot):
    release = robot.release(robot.bundle("next", seed=7))
    path = robot.home.releases / robot.home.last_good() / "bundle" / "policy.onnx"
    lock, model = robot.home.root / ".service.lock", path.read_bytes()
    owner = lock.read_text()
    path.write_bytes(model[:-1] + bytes([model[-1] ^ 1]))
    try:
        refused(robot, release, "return", "could not be returned to")
    finally:
        path.write_bytes(model)
    lock.write_text("1:1")  # As after the end of the service.
    try:
        assert "no service is running" in findings(robot, release)["return"]
    finally:
        lock.write_text(owner)
    assert findings(robot, release) == {}


@pytest.fixture
def large(robot):
    """A release of 400 kB."""
    folder = robot.folder / "site"
    folder.mkdir(exist_ok=True)
    (folder / "site.yaml").write_text(f"# {os.urandom(200_000).hex()}\nspeed: 1\n")
    return robot.release(robot.bundle(f"large-{time.monotonic_ns()}"), configs=[folder / "site.yaml"], key="lab")


def in_memory(folder, size_kb):
    """A ``gantry`` for which a folder is a disk in memory of that size."""
    mount = f"mount -t tmpfs -o size={size_kb}k none {folder}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this user cannot make a file system in memory")
    return f"unshare -rm sh -c '{mount} && exec \"$@\"' sh {GANTRY}"


def test_a_disk_without_room_is_refused_before_the_copy(robot, large):
    target = robot.target(command=in_memory(robot.home.incoming, 1024))
    refused(robot, large, "space", "bytes are needed, and 1048576 are free", target=target)


def test_a_disk_that_fills_up_during_the_copy(robot, large):
    folder = robot.home.incoming / large.manifest.release
    folder.mkdir()
    command = in_memory(folder, 128)
    with pytest.raises(FlashError, match=r"No space left on device: .*site\.yaml"):
        robot.flash(large, target=robot.target(command=command))
    # A limit on the size of files does the same where this user can make no file system.
    with pytest.raises(FlashError, match=r"File too large: .*site\.yaml"):
        robot.flash(large, target=robot.target(command=f"prlimit --fsize=100000 {GANTRY}"))
    assert partial_sizes(robot.home, large.manifest)["config/site.yaml"] == 100000  # What arrived stays.
    shutil.rmtree(folder)


def test_mistakes_on_the_command_line(robot, capsys, tmp_path):
    there = ["--ssh-config", robot.server.client_config(), "--home", str(robot.home.root)]
    bundle = str(robot.bundle("mistakes"))
    for words, text in (
        (["flash", bundle, "robot", *there, "--gantry", "/nowhere/gantry"], "has no 'gantry' where it is looked for"),
        (["flash", bundle, "nobody.invalid", "--retries", "0"], "nobody.invalid"),
        (["flash", bundle, "a b"], "is no host"),
        (["flash", "--list", "-oProxyCommand=x"], "expected one argument"),
        (["flash", bundle], "HOST"),
        (["flash", bundle, "robot", *there, "--key", "nobody"], "Unknown key 'nobody'"),
        (["flash", bundle, "robot", *there, "--config", "nothing.yaml"], "there is no file nothing.yaml"),
        (["onboard", "service", "--home", str(tmp_path)], "set the robot up first"),
        (["onboard", "service", "--home", str(robot.home.root)], "service .* is in use by"),
        (["onboard", "setup", "--robot", "go3", "--home", str(tmp_path)], "Unknown robot 'go3'. Did you mean 'go"),
    ):
        assert main(words) == 2
        err = capsys.readouterr().err
        assert re.search(text, err), (words, err)
        assert "Traceback" not in err


def test_a_stranger_at_the_door(robot):
    config = robot.server.client_config(name="stranger_config", identity="host_key")
    with pytest.raises(FlashError, match="Permission denied"):
        robot.flash(robot.release(robot.bundle("door")), target=robot.target(config), retries=3)
    assert not [line for line in robot.lines if "Going on" in line]
