"""Judgement of a release's signature by what the robot trusts and accepts."""

from __future__ import annotations

import hashlib

from gantry_deploy.bundle.files import MANIFEST
from gantry_deploy.bundle.keys import TrustedKeys
from gantry_deploy.bundle.signature import BUNDLE_TAG, RELEASE_TAG, SIGNATURE
from gantry_deploy.errors import BundleError, FlashError
from gantry_deploy.flash.home import RobotConfig, RobotHome, utc_now
from gantry_deploy.flash.release import Manifest
from gantry_hardware.files.json_file import parse_json_object


def signed_by(home: RobotHome, config: RobotConfig, manifest: Manifest, bundle_manifest: bytes) -> str:
    """Name of the key that signed a release, in words.

    A signature must cover everything: that of the bundle is enough for a release that holds nothing else, and one with
    configuration or wheels has its own.

    Args:
        home: The robot's folder, with the keys that it trusts.
        config: Says which roles are accepted, and whether unsigned releases are.
        manifest: Of the release.
        bundle_manifest: The bundle's ``manifest.json``.

    Raises:
        FlashError: If no key that this robot trusts now has signed it, and the robot accepts no other.
    """
    entry = next(file for file in manifest.files if file.path == f"bundle/{MANIFEST}")
    if hashlib.sha256(bundle_manifest).hexdigest() != entry.sha256:
        raise FlashError("The bundle's manifest is another one than the release's manifest names.")
    keys, now = TrustedKeys(home.keys_file), utc_now()
    alone = all(file.path.startswith("bundle/") for file in manifest.files)
    by_bundle = alone and manifest.data.get(SIGNATURE) is None
    data = parse_json_object(bundle_manifest, "the bundle's manifest", error=FlashError) if by_bundle else manifest.data
    try:
        key = keys.signer(data, BUNDLE_TAG if by_bundle else RELEASE_TAG, config.accept, now)
    except BundleError as error:
        if config.allow_unsigned:
            return f"accepted as robot.yaml allows (allow_unsigned): {error}"
        if data.get(SIGNATURE) is not None:
            way = "sign with such a key, or have this one trusted (gantry keys trust NAME --host USER@HOST)"
        elif alone:
            way = "sign the bundle (gantry sign BUNDLE --key NAME)"
        else:
            way = "sign the release (gantry flash --key NAME)"
        raise FlashError(
            f"{error} This robot accepts signatures of keys for {', '.join(config.accept)}; {way}."
        ) from error
    return f"signed by '{key.name}' ({key.role}, until {key.last_day})"
