"""The bundle that a node's parameters name."""

from __future__ import annotations

from typing import Any

from gantry_deploy.bundle.bundle import Bundle, load_bundle
from gantry_deploy.bundle.locate import WHERE, find_bundle
from gantry_hardware.errors import GantryError
from gantry_ros.runtime.host import Parameter

PARAMETERS = (
    Parameter("bundle", "", f"The policy bundle: {WHERE}."),
    Parameter("public_key", "", "Raw Ed25519 key, 64 hex digits; bundles that it did not sign are refused."),
)
"""Of every node that reads a bundle."""


def load_named_bundle(values: dict[str, Any]) -> Bundle:
    """Load and verify the bundle of the parameters.

    Raises:
        GantryError: If none is named, the key is none, or the bundle is not what it should be.
    """
    if not values["bundle"]:
        raise GantryError("Parameter 'bundle' is empty, expected the path of a policy bundle (-p bundle:=...).")
    return load_bundle(find_bundle(values["bundle"]), public_key=_public_key(values["public_key"]))


def _public_key(text: str) -> bytes | None:
    if not text:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError as error:
        raise GantryError(f"Parameter 'public_key' is '{text}', expected 64 hex digits ({error}).") from error
    if len(key) != 32:
        raise GantryError(f"Parameter 'public_key' has {len(text)} characters, expected 64 hex digits.")
    return key
