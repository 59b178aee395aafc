"""Bundles with a contract of version 1 as bundles with one of version 2: contract, network metadata, golden data, seal.

python scripts/convert_bundle.py FOLDER...

A folder is changed in place and sealed anew without a signature. Weights, scores and recorded numbers stay as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from gantry_deploy.bundle.bundle import write_bundle
from gantry_deploy.contract.policy_contract import METADATA_KEY, PolicyContract
from gantry_deploy.policy.golden import TARGET_ARRAY, TARGET_VELOCITY_ARRAY

Arrays = dict[str, np.ndarray]
RENAMED = {
    "looks_past": "carve_free_space",
    "past_reach_m": "carving_reach_m",
    "past_std_m": "carving_std_m",
    "carrot": "goal_velocity",
}
"""Fields of contracts that have other names since."""


def renamed(value: Any) -> Any:
    """Plain data with the names of today."""
    if isinstance(value, list):
        return [renamed(item) for item in value]
    if isinstance(value, dict):
        return {RENAMED.get(key, key): renamed(item) for key, item in value.items()}
    return value


def converted_contract(old: dict[str, Any]) -> dict[str, Any]:
    """A contract of version 2 from one of version 1, or from one of 2 with old names; plain data."""
    if old["version"] == 2:
        return renamed(old)
    if old["version"] != 1:
        raise SystemExit(f"The contract has version {old['version']}, expected 1 or 2.")
    arm, drive = old.pop("arm", None), old.pop("drive", None)
    name = "car" if drive is not None else "legs" if arm is None else "arm"
    cameras = [] if arm is None else arm.pop("cameras", [])
    body = drive if arm is None else arm
    return renamed({**old, "embodiment": name, "body": body, "cameras": cameras, "version": 2})


def converted_golden(golden: Arrays) -> Arrays:
    """Recorded steering angles and speeds of a car as joint targets and their velocities."""
    told = golden.pop("drive_target", None)
    if told is not None:
        joints = golden["joint_pos_rad"]
        golden[TARGET_ARRAY] = np.stack((told[:, 0], joints[:, 1]), axis=1).astype(told.dtype)
        golden[TARGET_VELOCITY_ARRAY] = np.stack((np.zeros_like(told[:, 1]), told[:, 1]), axis=1)
    return golden


def convert(folder: Path) -> None:
    """Convert one folder in place."""
    contract = PolicyContract.from_json(
        json.dumps(converted_contract(json.loads((folder / "contract.json").read_text())))
    )
    model = onnx.load_model_from_string((folder / "policy.onnx").read_bytes())
    for item in model.metadata_props:
        if item.key == METADATA_KEY:
            item.value = contract.to_json()
    with np.load(folder / "golden.npz") as arrays:
        golden = converted_golden(dict(arrays))
    card = folder / "card.json"
    more = {name: folder / f"{name}.onnx" for name in ("mapper", "base")}
    write_bundle(
        folder,
        contract=contract,
        model_bytes=model.SerializeToString(),
        golden=golden,
        card=json.loads(card.read_text()) if card.is_file() else None,
        **{f"{name}_bytes": path.read_bytes() for name, path in more.items() if path.is_file()},
    )


if __name__ == "__main__":
    for each in sys.argv[1:]:
        convert(Path(each))
        print(f"{each}: version 2")
