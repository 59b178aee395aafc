"""Bundles: what goes in comes out, and whatever was touched afterwards is refused with its name."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle import bundle as bundles
from gantry_deploy.bundle import files as bundle_files
from gantry_deploy.bundle.bundle import load_bundle, seal_bundle, update_card, write_bundle, write_zip
from gantry_deploy.contract.policy_contract import CONTRACT_VERSION
from gantry_deploy.errors import BundleError, ContractError
from gantry_deploy.testing.legs import contract_for, golden_data, linear_model, map_contract_for, tiny_robot
from gantry_hardware.robots import robot_spec

CONTRACT = contract_for(tiny_robot())
MODEL = linear_model(CONTRACT)
GOLDEN = golden_data(CONTRACT, steps=5)


@pytest.fixture
def folder(tmp_path):
    card = {"fall_rate": 0.01}
    return write_bundle(tmp_path / "bundle", contract=CONTRACT, model_bytes=MODEL, golden=GOLDEN, card=card)


def zip_of(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    return path


def entries_of(folder):
    return [(entry.name, entry.read_bytes()) for entry in sorted(folder.iterdir())]


@pytest.mark.parametrize("packed", [False, True])
def test_what_goes_in_comes_out(folder, tmp_path, packed):
    path = write_zip(folder, tmp_path / "bundle.zip") if packed else folder
    bundle = load_bundle(path)
    assert bundle.contract == CONTRACT
    assert bundle.model_bytes == MODEL
    assert bundle.card == {"fall_rate": 0.01}
    assert not bundle.is_signed
    assert set(bundle.golden) == set(GOLDEN)
    for name, values in GOLDEN.items():
        np.testing.assert_array_equal(bundle.golden[name], values)
        assert bundle.golden[name].dtype == values.dtype


@pytest.mark.parametrize("name", ["policy.onnx", "contract.json", "golden.npz", "card.json"])
@pytest.mark.parametrize("packed", [False, True])
def test_one_flipped_bit_in_any_file_is_refused_by_name(folder, tmp_path, name, packed):
    data = (folder / name).read_bytes()
    for position in {0, len(data) // 2, len(data) - 1}:
        (folder / name).write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        path = zip_of(tmp_path / "changed.zip", entries_of(folder)) if packed else folder
        with pytest.raises(BundleError, match=f"'{name}' was changed after the bundle was sealed"):
            load_bundle(path)


def test_any_flipped_byte_of_the_manifest_is_refused_or_harmless(folder):
    data = (folder / "manifest.json").read_bytes()
    refused = 0
    for position in range(len(data)):
        (folder / "manifest.json").write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        try:
            assert load_bundle(folder).model_bytes == MODEL
        except BundleError:
            refused += 1
    # Only white space may change without notice.
    assert refused >= len(b"".join(data.split()))


def test_nothing_is_parsed_before_its_hash_is_verified(folder):
    (folder / "contract.json").write_text("{")
    with pytest.raises(BundleError, match=r"'contract\.json' was changed"):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["policy.onnx", "contract.json", "golden.npz", "card.json", "manifest.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(BundleError, match=name):
        load_bundle(folder)


def test_an_extra_file_is_named(folder):
    (folder / "surprise.py").write_text("print()")
    with pytest.raises(BundleError, match=r"surprise\.py, which its manifest does not list"):
        load_bundle(folder)


def test_a_manifest_cannot_leave_out_the_network(folder):
    (folder / "policy.onnx").unlink()
    with pytest.raises(BundleError, match=r"lacks policy\.onnx"):
        seal_bundle(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["policy.onnx"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"lacks policy\.onnx"):
        load_bundle(folder)


def test_links_and_folders_are_refused(folder, tmp_path):
    real = tmp_path / "real.onnx"
    shutil.move(folder / "policy.onnx", real)
    (folder / "policy.onnx").symlink_to(real)
    with pytest.raises(BundleError, match=r"'policy\.onnx' is a link"):
        load_bundle(folder)
    (folder / "policy.onnx").unlink()
    shutil.move(real, folder / "policy.onnx")
    (folder / "more").mkdir()
    with pytest.raises(BundleError, match="'more' is no plain file"):
        load_bundle(folder)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/b", "..", "C:\\evil", "a\\b", ".hidden", "", "sub/", "x" * 100, "über"]
)
def test_names_that_are_paths_are_refused_in_a_zip(folder, tmp_path, name):
    path = zip_of(tmp_path / "bad.zip", [*entries_of(folder), (zipfile.ZipInfo(name), b"x")])
    with pytest.raises(BundleError, match="no plain file name"):
        load_bundle(path)


def test_a_link_in_a_zip_is_refused(folder, tmp_path):
    link = zipfile.ZipInfo("policy.onnx")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    others = [entry for entry in entries_of(folder) if entry[0] != "policy.onnx"]
    path = zip_of(tmp_path / "bad.zip", [*others, (link, "/etc/passwd")])
    with pytest.raises(BundleError, match=r"'policy\.onnx' is a link"):
        load_bundle(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_in_a_zip_is_refused(folder, tmp_path):
    path = zip_of(tmp_path / "bad.zip", [*entries_of(folder), ("policy.onnx", b"other")])
    with pytest.raises(BundleError, match=r"'policy\.onnx' is in the archive twice"):
        load_bundle(path)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_files, "MAX_BYTES", 2**20)
    path = zip_of(tmp_path / "bomb.zip", [*entries_of(folder), ("zeros", bytes(2**20))])
    assert path.stat().st_size < 2**16
    with pytest.raises(BundleError, match="'zeros', allowed are 1048576"):
        load_bundle(path)


def test_a_bomb_inside_the_golden_data_is_refused(folder, monkeypatch):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, zeros=np.zeros(2**17))
    reseal(folder, golden_npz=buffer.getvalue())
    monkeypatch.setattr(bundles, "MAX_BYTES", 2**20)
    with pytest.raises(
        BundleError, match=r"golden\.npz is not readable: it unpacks to 1\d{6} bytes with 'zeros.npy', allowed"
    ):
        load_bundle(folder)


def test_too_many_files_are_refused(folder, tmp_path):
    extra = [(f"file{i}", b"") for i in range(20)]
    with pytest.raises(BundleError, match="more than 16 files"):
        load_bundle(zip_of(tmp_path / "many.zip", [*entries_of(folder), *extra]))


def test_damaged_zips_are_refused(folder, tmp_path):
    data = write_zip(folder, tmp_path / "good.zip").read_bytes()
    bad = tmp_path / "bad.zip"
    for damaged in (b"", data[: len(data) // 2], data[:200] + bytes(200) + data[400:], b"PK\x03\x04" + bytes(100)):
        bad.write_bytes(damaged)
        with pytest.raises(BundleError):
            load_bundle(bad)


def test_a_zip_whose_directory_is_damaged_is_refused(folder, tmp_path):
    data = bytearray(write_zip(folder, tmp_path / "good.zip").read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    # Method 14 is LZMA, which the data are not; flag 11 says that names are UTF-8, which this one then is not.
    for changes in ({10: 14}, {9: 8, 46: 0xFF}):
        damaged = bytearray(data)
        for offset, value in changes.items():
            damaged[entry + offset] = value
        bad = tmp_path / "bad.zip"
        bad.write_bytes(damaged)
        with pytest.raises(BundleError, match="is no readable zip"):
            load_bundle(bad)


def test_zipping_equal_bundles_gives_equal_bytes(folder, tmp_path):
    first = write_zip(folder, tmp_path / "a.zip").read_bytes()
    assert write_zip(folder, tmp_path / "b.zip").read_bytes() == first


def test_a_changed_bundle_is_not_zipped_or_blessed_by_a_new_card(folder, tmp_path):
    (folder / "golden.npz").write_bytes(b"changed")
    for action in (lambda: write_zip(folder, tmp_path / "a.zip"), lambda: update_card(folder, {})):
        with pytest.raises(BundleError, match=r"'golden\.npz' was changed"):
            action()


def reseal(folder, **files):
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    seal_bundle(folder)
    return folder


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_golden_arrays_are_read_without_pickle(folder):
    reseal(folder, golden_npz=npz(evil=np.array([{"a": 1}], dtype=object)))
    with pytest.raises(BundleError, match=r"golden\.npz is not readable"):
        load_bundle(folder)


def test_golden_arrays_that_claim_more_than_they_hold_are_refused(folder):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("big.npy", header.getvalue() + bytes(64))
    reseal(folder, golden_npz=buffer.getvalue())
    with pytest.raises(BundleError, match=r"shape \(1000000000000,\)"):
        load_bundle(folder)


def test_a_contract_of_a_newer_version_is_refused(folder):
    data = json.loads((folder / "contract.json").read_text())
    data["version"] = CONTRACT_VERSION + 1
    reseal(folder, contract_json=json.dumps(data).encode())
    with pytest.raises(ContractError, match="update Gantry"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ("", "no JSON"),
        ("[]", "JSON list"),
        ("\xff", "UTF-8|no JSON"),
        ('{"format": 2, "files": {}}', "format 2, this runtime understands 1 to 1"),
        ('{"format": true, "files": {}}', "expected an integer"),
        ('{"format": 1}', "an object 'files'"),
        ("[" * 100_000, "nested deeper than 64"),
        ('{"format": ' + "1" * 5000 + "}", "does not fit 64 bits"),
        ('{"format": 1, "files": {}, "format": 1}', "the key 'format' twice"),
        ('{"format": NaN, "files": {}}', "NaN in it, expected a finite number"),
    ],
)
def test_a_malformed_manifest_is_refused(folder, manifest, text):
    (folder / "manifest.json").write_bytes(manifest.encode("latin-1"))
    with pytest.raises(BundleError, match=text):
        load_bundle(folder)


def test_what_the_system_does_not_let_one_read_is_one_message(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    # The tests may run as root, who is denied nothing.
    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(BundleError, match=r"cannot be read: Permission denied\."):
        load_bundle(folder)


def test_no_bundle_at_all(tmp_path):
    with pytest.raises(BundleError, match="no bundle at"):
        load_bundle(tmp_path / "nothing")


@pytest.mark.parametrize("packed", [False, True])
def test_a_new_card_keeps_the_bundle_sealed(folder, tmp_path, packed):
    path = write_zip(folder, tmp_path / "bundle.zip") if packed else folder
    update_card(path, {"fall_rate": 0.0, "episodes": 200})
    bundle = load_bundle(path)
    assert bundle.card == {"fall_rate": 0.0, "episodes": 200}
    assert bundle.model_bytes == MODEL


@pytest.mark.parametrize(("mapper", "found"), [(None, "missing"), (b"another", hashlib.sha256(b"another").hexdigest())])
def test_a_mapper_that_the_policy_did_not_learn_with_is_refused(tmp_path, mapper, found):
    contract = map_contract_for(robot_spec("go2"))
    digest = hashlib.sha256(b"mapper").hexdigest()
    contract = replace(contract, map_window=replace(contract.map_window, mapper_sha256=digest))
    model, golden = linear_model(contract), golden_data(contract)
    parts = {"contract": contract, "model_bytes": model, "golden": golden}
    write_bundle(tmp_path / "good", mapper_bytes=b"mapper", **parts)
    assert load_bundle(tmp_path / "good").mapper_bytes == b"mapper"
    write_bundle(tmp_path / "bad", mapper_bytes=mapper, **parts)
    with pytest.raises(BundleError, match=f"trained with mapper.onnx {digest[:12]}, this one is {found[:12]}"):
        load_bundle(tmp_path / "bad")
