"""Signatures of bundles: what they cover, and what is refused because of them."""

from __future__ import annotations

import base64
import json

import pytest

from gantry_deploy.bundle.bundle import load_bundle, seal_bundle, update_card, write_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.errors import BundleError
from gantry_deploy.testing.legs import contract_for, golden_data, linear_model, tiny_robot

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CONTRACT = contract_for(tiny_robot())
MODEL = linear_model(CONTRACT)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PRIVATE, PUBLIC = KEY.private_bytes_raw(), KEY.public_key().public_bytes_raw()


@pytest.fixture
def folder(tmp_path):
    golden = golden_data(CONTRACT, steps=5)
    return write_bundle(tmp_path / "bundle", contract=CONTRACT, model_bytes=MODEL, golden=golden)


def inspected(capsys, *argv):
    code = main(["inspect", *(str(word) for word in argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_signature_is_verified(folder):
    seal_bundle(folder, private_key=PRIVATE)
    verified, unverified = load_bundle(folder, public_key=PUBLIC), load_bundle(folder)
    assert verified.is_signed
    assert verified.signature_text == "signature verified"
    assert unverified.is_signed
    assert unverified.signature_text == "carries a signature, not verified (no key given)"


def test_a_signature_is_of_tag_format_and_files_and_of_nothing_less(folder):
    manifest = seal_bundle(folder, private_key=PRIVATE)
    files = json.dumps(manifest["files"], sort_keys=True, separators=(",", ":")).encode()
    key = Ed25519PrivateKey.from_private_bytes(PRIVATE)
    key.public_key().verify(
        base64.b64decode(manifest["signature"]), b'gantry policy bundle\0{"files":' + files + b',"format":1}'
    )
    (folder / "manifest.json").write_text(
        json.dumps({**manifest, "signature": base64.b64encode(key.sign(files)).decode()})
    )
    with pytest.raises(BundleError, match="does not belong to this public key"):
        load_bundle(folder, public_key=PUBLIC)


def test_wrong_missing_or_broken_signatures_are_refused(folder):
    with pytest.raises(BundleError, match="is not signed"):
        load_bundle(folder, public_key=PUBLIC)
    seal_bundle(folder, private_key=bytes(32))
    with pytest.raises(BundleError, match="does not belong to this public key"):
        load_bundle(folder, public_key=PUBLIC)
    manifest = seal_bundle(folder, private_key=PRIVATE)
    for signature in ("", "?", "AAAA", 5, manifest["signature"][::-1]):
        (folder / "manifest.json").write_text(json.dumps({**manifest, "signature": signature}))
        with pytest.raises(BundleError, match="does not belong to this public key"):
            load_bundle(folder, public_key=PUBLIC)
    with pytest.raises(BundleError, match="has 3 bytes, expected 32"):
        load_bundle(folder, public_key=b"abc")
    with pytest.raises(BundleError, match="has 3 bytes, expected 32"):
        seal_bundle(folder, private_key=b"abc")


def test_a_file_changed_and_sealed_again_without_the_key_is_refused(folder):
    manifest = seal_bundle(folder, private_key=PRIVATE)
    (folder / "policy.onnx").write_bytes(MODEL + b"\0")
    forged = seal_bundle(folder)
    (folder / "manifest.json").write_text(json.dumps({**forged, "signature": manifest["signature"]}))
    with pytest.raises(BundleError, match="does not belong to this public key"):
        load_bundle(folder, public_key=PUBLIC)


def test_a_new_card_for_a_signed_bundle_needs_the_key(folder):
    seal_bundle(folder, private_key=PRIVATE)
    with pytest.raises(BundleError, match="needs the private key"):
        update_card(folder, {})
    update_card(folder, {"fall_rate": 0.5}, private_key=PRIVATE)
    assert load_bundle(folder, public_key=PUBLIC).card == {"fall_rate": 0.5}


def test_keys_in_files_and_in_hex_digits(folder, tmp_path, capsys):
    private, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    raw = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    pem = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "good.pem").write_bytes(private.public_key().public_bytes(*pem))
    (tmp_path / "good.raw").write_bytes(private.public_key().public_bytes(*raw))
    (tmp_path / "wrong.pem").write_bytes(stranger.public_key().public_bytes(*pem))
    (tmp_path / "no.pem").write_text("hello")
    seal_bundle(folder, private_key=private.private_bytes_raw())
    assert "carries a signature, not verified (no key given)" in inspected(capsys, folder)[1]
    for key in (tmp_path / "good.pem", tmp_path / "good.raw", private.public_key().public_bytes_raw().hex()):
        assert "signature verified" in inspected(capsys, folder, "--public-key", key)[1]
    assert inspected(capsys, folder, "--public-key", tmp_path / "wrong.pem")[0] == 2
    code, _, err = inspected(capsys, folder, "--public-key", tmp_path / "no.pem")
    assert code == 2
    assert "holds no Ed25519 public key" in err
