"""A bundle as a LEAPP folder: graph, first values and description, compared with the runtime before it counts."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import LeappError
from gantry_deploy.leapp.drawn import STEPS, answers, drawn_states
from gantry_deploy.leapp.facts import FACTS_KEY, facts_of
from gantry_deploy.leapp.folder import BACKEND, read_leapp
from gantry_deploy.leapp.wiring import wire
from gantry_deploy.policy.golden import recorded_state
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.files.text import path_text
from gantry_hardware.files.whole_files import write_whole
from gantry_hardware.robots import robot_spec
from gantry_mapping.onnx.network import Network
from gantry_policies.leapp import graph as parts
from gantry_policies.leapp.graph import Layout, layout_of, leapp_graph

MAX_DIFFERENCE_RAD = 1e-5
"""Largest difference between the graph's and the runtime's joint targets that an export tolerates."""
BEYOND = 1.5
"""Commands of the comparison reach so far beyond the trained range, to which both limit them."""

_XYZ = ("x", "y", "z")
_KINDS: dict[str, tuple[str, Sequence[str], str]] = {
    parts.JOINT_POS: ("state/joint/position", (), ""),
    parts.JOINT_VEL: ("state/joint/velocity", (), ""),
    parts.ROTATION: ("state/body/rotation", ("qx", "qy", "qz", "qw"), "base to world"),
    parts.ANG_VEL: ("state/body/angular_velocity", _XYZ, "base"),
    parts.LIN_VEL: ("state/body/linear_velocity", _XYZ, "base"),
    parts.COMMAND: ("command/body/velocity", ("lin_vel_x", "lin_vel_y", "ang_vel_z"), "base"),
    parts.TARGET: ("target/joint/position", (), ""),
    parts.KP: ("kp", (), ""),
    parts.KD: ("kd", (), ""),
}
"""Tensor to its kind, element names (joints where there are none) and frame."""


def export_leapp(bundle: Bundle, folder: str | Path) -> float:
    """Write a LEAPP folder.

    Args:
        bundle: A verified bundle.
        folder: New or empty.

    Returns:
        The largest difference between the graph's and the runtime's joint targets over 100 drawn steps, rad.

    Raises:
        LeappError: If the contract holds what a LEAPP bundle has no place for, the folder holds files, the graph and
            the runtime differ, or the disk does not take it; nothing is written then.
    """
    folder, contract = Path(folder), bundle.contract
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LeappError(f"{path_text(folder)} is there already and not empty; name a new folder.")
    name = _plain_name(contract)
    model = leapp_graph(bundle.model_bytes, contract, {FACTS_KEY: facts_of(contract).to_json()})
    files = _files(name, contract, layout_of(contract), model.SerializeToString())
    try:
        with tempfile.TemporaryDirectory() as scratch:
            _write(Path(scratch), files)
            difference = _difference(bundle, Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, files)
    except OSError as error:
        raise LeappError(f"Cannot write {path_text(folder)}: {error.strerror or error}.") from error
    return difference


def _plain_name(contract: PolicyContract) -> str:
    """Name of the network and of its files: that of the task."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", contract.provenance.task or contract.robot).strip("-") or "policy"


def _files(name: str, contract: PolicyContract, layout: Layout, model: bytes) -> dict[str, bytes]:
    """Files of the folder by name, the description last."""
    first = {
        f"{name}/{state}_in": np.full(shape, float(state == parts.FRESH), np.float32)
        for state, shape in layout.states.items()
    }
    values = f"{name}_initial_values.safetensors"
    told = _description(name, contract, layout, model) | {"system information": _system()}
    told["pipeline"]["initial_values"] = values
    return {
        f"{name}.onnx": model,
        values: save(first),
        f"{name}.yaml": yaml.safe_dump(told, sort_keys=False, default_flow_style=None, width=120).encode(),
    }


def _system() -> dict[str, str]:
    return {"written_by": f"gantry {version('gantry-rl')}", "onnx": version("onnx"), "torch": version("torch")}


def _description(name: str, contract: PolicyContract, layout: Layout, model: bytes) -> dict[str, Any]:
    n = len(contract.joint_names)
    states = {f"{state}_{end}": list(shape) for state, shape in layout.states.items() for end in ("in", "out")}

    def tensor(key: str) -> dict[str, Any]:
        shape = states.get(key, [1, layout.signals.get(key, n)])
        told: dict[str, Any] = {"name": key, "dtype": "float32", "shape": shape, "type": "tensor"}
        if key in _KINDS:
            kind, elements, frame = _KINDS[key]
            told |= {"kind": kind, "element_names": [list(elements or contract.joint_names)]}
            told |= {"frame": frame} if frame else {}
        return told

    outputs = [parts.TARGET, *(f"{state}_out" for state in layout.states), parts.KP, parts.KD]
    parameters = {
        "model_path": f"{name}.onnx",
        "md5sum": hashlib.md5(model, usedforsecurity=False).hexdigest(),
        "sha256sum": hashlib.sha256(model).hexdigest(),
        "backend": BACKEND,
        "opset_version": parts.OPSET,
    }
    return {
        "models": {
            name: {
                "inputs": [tensor(key) for key in layout.names],
                "outputs": [tensor(key) for key in outputs],
                "parameters": parameters,
            }
        },
        "pipeline": {
            "configs": {"frequency": contract.rate_hz},
            "data_flow": {},
            "feedback_flow": {f"{name}/{state}_out": [f"{name}/{state}_in"] for state in layout.states},
            "inputs": {name: list(layout.signals)},
            "outputs": {name: [parts.TARGET, parts.KP, parts.KD]},
        },
    }


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        write_whole(folder / name, data)


def _difference(bundle: Bundle, folder: Path) -> float:
    """Largest difference between the folder's and the runtime's joint targets over drawn states, rad.

    Raises:
        LeappError: If it is too large.
    """
    contract, written = bundle.contract, read_leapp(folder)
    spec, size = robot_spec(contract.robot), len(contract.command.names)
    limits = contract.command.lower or (0.0,) * 3, contract.command.upper or (0.0,) * 3
    beyond = tuple(tuple(BEYOND * item for item in side) for side in limits)
    states = drawn_states(spec, contract.default_pos_rad, beyond, contract.rate_hz)
    wiring = wire(written, contract.joint_names)
    found = answers(Network(written.model_bytes, f"{written.name}.onnx", LeappError), written, wiring, states)
    runner, worst = PolicyRunner(bundle, spec), 0.0
    for row in range(STEPS):
        if states["episode_start"][row]:
            runner.reset()
        target = runner.step(recorded_state(states, row), states["command"][row, :size]).target.pos_rad
        worst = max(worst, float(np.abs(target - found[wiring.graph.output][row]).max()))
    if not worst <= MAX_DIFFERENCE_RAD:
        raise LeappError(
            f"The graph's joint targets differ from the runtime's by {worst:.2e} rad, allowed are "
            f"{MAX_DIFFERENCE_RAD:g}."
        )
    return worst
