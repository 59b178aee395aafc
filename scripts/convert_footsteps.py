"""Conversion of committed bundles to footstep contracts without the numbers that are constants of the decoder now.

    python scripts/convert_footsteps.py sim/gantry_sim/pretrained/NAME...

It renames and drops fields of ``contract.json`` and of the copy in ``policy.onnx``, and seals the bundle again. A
dropped number must be the constant's, so that the policy computes the same; a converted bundle stays as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx

from gantry_deploy.bundle.bundle import seal_bundle
from gantry_deploy.contract.policy_contract import METADATA_KEY

RENAMED_PARTS = {"posture": "body_pose", "steer": "path"}
"""Parts of ``gait.steps``: old name to new one."""
DROPPED: dict[str, dict[str, Any]] = {
    "support": {
        "pitch_share": 0.9208,
        "roll_share": 0.4,
        "velocity_gain_1_s": 4.8519,
        "height_gain_1_s2": 161.37,
        "height_damping_1_s": 14.1729,
        "tilt_gain_1_s2": 262.9786,
        "tilt_damping_1_s": 14.0,
        "friction": 0.4404,
        "upright_1_s": 2.0,
        "narrow_share": 0.6,
    },
    "swing": {
        "arrive": 1.0,
        "lead_s": 0.04,
        "turn_lead_s": 0.0154,
        "move_lead_s": 0.05,
        "early_share": 0.6,
        "early_m_s": 0.3,
    },
    "footholds": {
        "edge_share": 0.2,
        "lack_m2": 0.16,
        "ahead_m_s": 0.0168,
        "inward_m": 0.32,
        "together": 6.0,
        "follow_1_s": 3.0,
        "keep": 4.0,
    },
    "body_pose": {
        "free_m": 0.1,
        "nose_up_rad": 0.45,
        "height_m_rad": 0.1,
        "belly_up_m": 0.12,
        "wall_m": 0.45,
    },
    "path": {
        "fan_rad": 0.7,
        "ways": 13,
        "points": 7,
        "go_m": 0.4,
        "near_m": 0.4,
        "lack": 5.0,
        "wall": 30.0,
        "most_lack": 0.8,
        "straight": 2.0,
        "turn_rad": [0.5, 1.0],
    },
}
"""Part of ``gait.steps`` to the fields that it lost, with the values that the decoder has as constants."""


def convert(contract: dict[str, Any]) -> dict[str, Any]:
    """Contract with the fields of this release; it is changed in place.

    Raises:
        ValueError: If a dropped number is not the constant's.
    """
    command = contract["command"]
    if "carrot" in command:
        command["goal_velocity"] = command.pop("carrot")
    steps = (contract.get("gait") or {}).get("steps")
    if not steps:
        return contract
    for old, new in RENAMED_PARTS.items():
        if old in steps:
            steps[new] = steps.pop(old)
    for part, constants in DROPPED.items():
        for name, constant in constants.items():
            value = (steps.get(part) or {}).pop(name, constant)
            if value != constant:
                raise ValueError(f"gait.steps.{part}.{name} is {value}, and {constant} in this release.")
    if "footholds" in steps:
        steps["swing"]["search_m"] = steps.pop("footholds")["search_m"]
    return contract


def convert_bundle(folder: Path) -> None:
    """Convert the bundle of a folder, and its scores' configuration where it names a renamed field."""
    file, network = folder / "contract.json", folder / "policy.onnx"
    text = json.dumps(convert(json.loads(file.read_text())), indent=1)
    file.write_text(text)
    model = onnx.load(network)
    entry = next(entry for entry in model.metadata_props if entry.key == METADATA_KEY)
    entry.value = text
    network.write_bytes(model.SerializeToString())
    card = folder / "card.json"
    if card.is_file():
        card.write_text(card.read_text().replace('"carrot"', '"goal_velocity"'))
    seal_bundle(folder)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        convert_bundle(Path(name))
