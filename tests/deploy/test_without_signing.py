"""A robot without the package ``cryptography``: it runs unsigned bundles, and refuses what it would have to verify."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gantry_deploy.testing.legs import tiny_bundle

KEY = "ab" * 32
INSTALL = "pip install 'gantry-rl[signing]'"
BLOCK = "import sys; sys.modules['cryptography'] = None\n"
ARRIVAL = """
from pathlib import Path
from gantry_deploy.bundle.keys import TrustedKey, TrustedKeys
from gantry_deploy.errors import GantryError
from gantry_deploy.flash.acceptance import signed_by
from gantry_deploy.flash.home import RobotConfig, RobotHome
from gantry_deploy.flash.release import make_release

home, key, allow = RobotHome(Path(sys.argv[1])), sys.argv[3], sys.argv[4] == "allow"
TrustedKeys(home.keys_file).trust(TrustedKey("lab", key, "release", "2999-01-01"))
release = make_release(Path(sys.argv[2]), [])
try:
    print(signed_by(home, RobotConfig("go2", allow_unsigned=allow), release.manifest, release.bundle_manifest))
except GantryError as error:
    sys.exit(str(error))
"""


def without_signing(code, *words):
    """A process in which the import of the package fails."""
    command = [sys.executable, "-c", BLOCK + code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def gantry(*words):
    return without_signing("from gantry_deploy.cli.main import main; sys.exit(main(sys.argv[1:]))", *words)


@pytest.fixture
def unsigned(tmp_path):
    return tiny_bundle(tmp_path / "bundle").path


@pytest.fixture
def signed(unsigned):
    """A bundle with a signature of some key; whose, nobody can tell without the package."""
    manifest = unsigned / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "signature": "A" * 86 + "=="}))
    return unsigned


def test_an_unsigned_bundle_is_read(unsigned):
    done = gantry("inspect", unsigned)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not signed" in done.stdout


def test_a_signature_that_nobody_asks_for_is_named_as_not_verified(signed):
    done = gantry("inspect", signed)
    assert (done.returncode, done.stderr) == (0, "")
    assert "carries a signature, not verified (no key given)" in done.stdout


@pytest.mark.parametrize("command", ["inspect", "run"])
def test_a_signature_that_must_be_verified_is_refused_with_the_command_that_helps(signed, command):
    done = gantry(command, signed, "--public-key", KEY)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "need the package 'cryptography'" in done.stderr
    assert INSTALL in done.stderr


def test_a_robot_refuses_a_signed_release(signed, tmp_path):
    for allowed in ("allow", "no"):
        done = without_signing(ARRIVAL, tmp_path / "robot", signed, KEY, allowed)
        assert (done.returncode, done.stdout) == (1, "")
        assert INSTALL in done.stderr


def test_a_robot_that_accepts_unsigned_releases_takes_one(unsigned, tmp_path):
    done = without_signing(ARRIVAL, tmp_path / "robot", unsigned, KEY, "allow")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("accepted as robot.yaml allows (allow_unsigned): It is not signed.")


def test_no_key_is_made(tmp_path):
    done = gantry("keys", "new", "lab", "--folder", tmp_path / "keys")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Keys and signatures need the package 'cryptography' (" in done.stderr
    assert INSTALL in done.stderr
    assert not list(tmp_path.rglob("lab*"))
