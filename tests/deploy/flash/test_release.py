"""Releases and keys as files: names, manifests, wheels, permissions."""

import json
import os
import stat
import sys
from dataclasses import replace

import pytest

from gantry_deploy.bundle.bundle import load_bundle, sign_bundle
from gantry_deploy.bundle.keys import TrustedKey, TrustedKeys, last_day_after, make_key, private_key_named
from gantry_deploy.bundle.signature import public_key_of, read_private_key, read_public_key
from gantry_deploy.cli.main import main
from gantry_deploy.errors import BundleError, FlashError
from gantry_deploy.flash.preflight import wheel_refusal
from gantry_deploy.flash.release import make_release, parse_manifest, read_release
from gantry_deploy.testing.legs import tiny_bundle
from gantry_fixtures.training import needs
from gantry_hardware.errors import GantryError, UnknownNameError


@pytest.fixture
def release(tmp_path):
    tiny_bundle(tmp_path / "walk")
    return make_release(tmp_path / "walk")


def test_equal_contents_have_an_equal_name(tmp_path, release):
    assert make_release(tmp_path / "walk").manifest.release == release.manifest.release
    site = tmp_path / "site.yaml"
    site.write_text("a: 1\n")
    other = make_release(tmp_path / "walk", [site])
    assert other.manifest.release != release.manifest.release
    assert [file.path for file in other.manifest.files if file.path.startswith("config")] == ["config/site.yaml"]
    assert other.manifest.data["runtime"]["wheels"] is False


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data.update(format=2), "has format 2, understood are 1 to 1"),
        (
            lambda data: data["files"].update({"../x": {"size": 1, "sha256": "0" * 64}}),
            "names '../x', which is no file",
        ),
        (lambda data: data["files"].update({"config/../x": {"size": 1, "sha256": "0" * 64}}), "which is no file"),
        (lambda data: data["files"].update({"config/x": {"size": -1, "sha256": "0" * 64}}), "no size and SHA-256"),
        (
            lambda data: data["files"].update({"config/x": {"size": 2**40, "sha256": "0" * 64}}),
            "has more than 500 files",
        ),
        (lambda data: data["files"].pop("bundle/manifest.json"), "The release holds no bundle"),
        (lambda data: data.pop("runtime"), "lacks 'files', 'runtime' or 'robot'"),
    ],
)
def test_manifests_that_are_refused(release, change, text):
    data = json.loads(release.manifest.text)
    change(data)
    with pytest.raises(FlashError, match=text.replace("(", r"\(")):
        parse_manifest(json.dumps(data).encode())


def test_a_folder_is_compared_with_its_manifest(tmp_path, release):
    folder = tmp_path / "there"
    for file in release.manifest.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(b"".join(release.read(file.path, 0)))
    with pytest.raises(FlashError, match="is no release"):
        read_release(folder)
    (folder / "manifest.json").write_bytes(release.manifest.text)
    assert read_release(folder).release == release.manifest.release
    (folder / "bundle" / "more").write_text("x")
    with pytest.raises(FlashError, match="'bundle/more' is not in its manifest"):
        read_release(folder)
    (folder / "bundle" / "more").unlink()
    model = folder / "bundle" / "policy.onnx"
    model.rename(tmp_path / "elsewhere")
    with pytest.raises(FlashError, match=r"'bundle/policy\.onnx' is missing"):
        read_release(folder)
    model.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FlashError, match=r"'bundle/policy\.onnx' is a link"):
        read_release(folder)


def test_what_cannot_be_collected(tmp_path, release):
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [1\n")
    with pytest.raises(GantryError, match=r"bad\.yaml.*no YAML"):
        make_release(tmp_path / "walk", [bad])
    good = tmp_path / "a b.yaml"
    good.write_text("a: 1\n")
    with pytest.raises(FlashError, match=r"'config/a b\.yaml' is no name"):
        make_release(tmp_path / "walk", [good])
    (tmp_path / "wheels").mkdir()
    with pytest.raises(FlashError, match="holds no wheel of gantry-rl"):
        make_release(tmp_path / "walk", [], tmp_path / "wheels")


def test_a_mistake_in_how_it_is_run_is_found_before_anything_is_copied(tmp_path, release):
    run = tmp_path / "run.yaml"
    run.write_text("backend: mock\nargumens: [--duration, '5']\n")
    with pytest.raises(FlashError, match="Did you mean 'arguments'"):
        make_release(tmp_path / "walk", [run])


def test_wheels_that_fit():
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    machine = os.uname().machine
    assert wheel_refusal("gantry_rl-0.2.0-py3-none-any.whl") == ""
    assert wheel_refusal(f"numpy-2.0-{own}-{own}-manylinux_2_28_{machine}.whl") == ""
    assert wheel_refusal(f"cryptography-50-cp39-abi3-manylinux_2_28_{machine}.whl") == ""
    assert wheel_refusal("numpy-2.0-cp27-cp27m-any.whl") == "is for cp27"
    assert wheel_refusal(f"numpy-2.0-{own}-{own}-win_arm64.whl") == "is for win_arm64"
    assert wheel_refusal("numpy.whl") == "is no wheel by its name"


@needs("cryptography")
def test_keys_are_readable_by_their_owner_alone(tmp_path):
    folder = tmp_path / "keys"
    private, public = make_key(folder, "lab")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    key = private_key_named(folder, "lab")
    assert read_public_key(public) == public_key_of(key) == public_key_of(read_private_key(private))
    with pytest.raises(GantryError, match="There is a key 'lab'"):
        make_key(folder, "lab")
    with pytest.raises(UnknownNameError, match=r"Unknown key 'lap'. Did you mean 'lab'\?"):
        private_key_named(folder, "lap")
    with pytest.raises(BundleError, match="is no name of a key"):
        make_key(folder, "../x")
    private.chmod(0o644)
    with pytest.raises(GantryError, match="Others may read the key"):
        private_key_named(folder, "lab")


@needs("cryptography")
def test_one_name_means_one_key(tmp_path):
    make_key(tmp_path, "a"), make_key(tmp_path, "b")
    first, second = (public_key_of(private_key_named(tmp_path, name)).hex() for name in "ab")
    path, day = tmp_path / "robot" / "trusted.json", last_day_after(1).isoformat()
    TrustedKeys(path).trust(TrustedKey("lab", first, "development", day))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(BundleError, match="has that name already"):
        TrustedKeys(path).trust(TrustedKey("lab", second, "development", day))
    with pytest.raises(BundleError, match="has that key already"):
        TrustedKeys(path).trust(TrustedKey("other", first, "development", day))
    TrustedKeys(path).trust(TrustedKey("lab", first, "release", day))
    assert TrustedKeys(path).keys["lab"].role == "release"
    for fields, text in (
        ({"role": "boss"}, "Unknown role of a key 'boss'"),
        ({"last_day": "soon"}, "'soon' is no day"),
        ({"public_key": "12"}, "expected 64 hex digits"),
    ):
        with pytest.raises(GantryError, match=text):
            replace(TrustedKeys(path).keys["lab"], **fields)


@needs("cryptography")
def test_a_signed_bundle_is_the_bundle_that_it_was(tmp_path):
    make_key(tmp_path / "keys", "lab")
    key = private_key_named(tmp_path / "keys", "lab")
    before = tiny_bundle(tmp_path / "walk")
    sign_bundle(tmp_path / "walk", key)
    after = load_bundle(tmp_path / "walk", public_key=public_key_of(key))
    assert after.signature_verified
    assert after.manifest["files"] == before.manifest["files"]
    assert main(["sign", str(tmp_path / "walk"), "--key", str(tmp_path / "keys" / "lab.key")]) == 0
