"""Tensors of a LEAPP bundle matched by kind and element names with what this runtime observes and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gantry_deploy.contract.arm_spec import JOINT_TARGET
from gantry_deploy.contract.graph_spec import STATE_TYPES, GraphInput, GraphSpec, GraphState
from gantry_deploy.contract.parts import BODY_VELOCITY
from gantry_deploy.contract.policy_contract import ObservationTerm
from gantry_deploy.errors import LeappError
from gantry_deploy.leapp.folder import LeappFolder, Tensor
from gantry_deploy.observations.builder import make_term
from gantry_hardware.errors import unknown_name_text
from gantry_hardware.files.text import names_text

KP, KD = "kp", "kd"
"""Kinds of the outputs that hold gains."""
TARGET_PREFIX = "target/"
"""Beginning of the kinds of outputs that a robot is to follow."""
_XYZ = ("x", "y", "z")


@dataclass(frozen=True)
class Signal:
    """A signal that this runtime can give to a network."""

    kind: str
    """Semantic kind of the input."""
    term: str
    """Observation term that holds it."""
    elements: tuple[str, ...] = ()
    """Names of its numbers in the term's order; empty for one number per joint."""
    properties: tuple[str, ...] = ()
    """Names in Isaac Lab's state of a robot that mean it, in this frame; empty for any."""
    needs_property: bool = False
    """Whether the kind alone says too little."""


SIGNALS = (
    Signal("state/joint/position", "joint_pos_absolute", properties=("joint_pos",)),
    Signal("state/joint/velocity", "joint_vel", properties=("joint_vel",)),
    Signal(
        "state/body/angular_velocity",
        "base_ang_vel",
        _XYZ,
        ("root_ang_vel_b", "root_link_ang_vel_b", "root_com_ang_vel_b"),
    ),
    Signal(
        "state/body/linear_velocity",
        "base_lin_vel",
        _XYZ,
        ("root_lin_vel_b", "root_link_lin_vel_b", "root_com_lin_vel_b"),
    ),
    Signal("state/body/rotation", "base_rotation", ("qw", "qx", "qy", "qz"), ("root_quat_w", "root_link_quat_w")),
    Signal("state/vector3d", "projected_gravity", _XYZ, ("projected_gravity_b",), needs_property=True),
    Signal(BODY_VELOCITY, "velocity_command", ("lin_vel_x", "lin_vel_y", "ang_vel_z")),
)
"""All that a network may ask for. Isaac Lab's kinds do not tell the frame, its names of properties do."""


@dataclass(frozen=True)
class Wiring:
    """A LEAPP bundle in this runtime's terms."""

    graph: GraphSpec
    """Inputs, states and targets."""
    observations: tuple[ObservationTerm, ...]
    """Terms that the inputs take."""
    gains: Mapping[str, tuple[str, tuple[int, ...]]]
    """:data:`KP` and :data:`KD`, as far as there are such outputs, to the output and the place of each joint in it."""
    has_command: bool
    """Whether the network asks for a velocity command."""


def wire(folder: LeappFolder, joint_names: Sequence[str]) -> Wiring:
    """Match the tensors of a LEAPP bundle with a robot.

    Args:
        folder: The bundle.
        joint_names: The robot's joints in its own order.

    Raises:
        LeappError: If an input is no signal of this runtime, or names, shapes or outputs do not fit; names the tensor.
    """
    inputs, sizes = [], {}
    for tensor in folder.inputs:
        if tensor.name in folder.feedback:
            continue
        signal = _signal(tensor)
        elements = signal.elements or tuple(joint_names)
        inputs.append(GraphInput(tensor.name, signal.term, _order(tensor, elements, "input")))
        sizes[signal.term] = len(elements)
    target, order = _target(folder, joint_names)
    states = tuple(_state(folder, name, output) for name, output in folder.feedback.items())
    gains = {
        kind: (tensor.name, _places(tensor, joint_names))
        for kind in (KP, KD)
        for tensor in folder.outputs
        if tensor.kind == kind
    }
    graph = GraphSpec(tuple(inputs), target, order, states)
    terms = tuple(make_term(name, size) for name, size in sizes.items())
    return Wiring(graph, terms, gains, "velocity_command" in sizes)


def _signal(tensor: Tensor) -> Signal:
    """The signal that an input asks for."""
    known = {signal.kind: signal for signal in SIGNALS}
    what = f"The network's input '{tensor.name}' of kind '{tensor.kind}'"
    if tensor.kind not in known:
        raise LeappError(
            f"{what} is no signal of this runtime, which has no sensor or estimator for it; it has "
            f"{names_text(sorted(known), most=len(known))}."
        )
    signal, prop = known[tensor.kind], _property(tensor)
    if prop is None:
        if signal.needs_property:
            raise LeappError(f"{what} does not say which vector it means; expected {names_text(signal.properties)}.")
        return signal
    if signal.properties and prop not in signal.properties:
        raise LeappError(
            f"{what} is '{prop}' in Isaac Lab, in another frame or of another body than this runtime's "
            f"{names_text(signal.properties)}."
        )
    return signal


def _property(tensor: Tensor) -> str | None:
    """Name of the property of a robot that an input stands for in Isaac Lab; None for anything else."""
    source, *rest = tensor.connection.split(":")
    return rest[-1] if source == "state" and len(rest) > 1 else None


def _order(tensor: Tensor, elements: Sequence[str], what: str) -> tuple[int, ...]:
    """Place of each of a tensor's numbers among named elements."""
    _require_row(tensor, len(elements), what)
    where = {name: i for i, name in enumerate(elements)}
    if not tensor.elements:
        raise LeappError(f"The network's {what} '{tensor.name}' has no element_names, and their order is not guessed.")
    for name in tensor.elements:
        if name not in where:
            raise LeappError(unknown_name_text(f"element of the {what} '{tensor.name}'", name, elements))
    order = tuple(where[name] for name in tensor.elements)
    if sorted(order) != list(range(len(elements))):
        raise LeappError(
            f"The network's {what} '{tensor.name}' holds {names_text(tensor.elements)}, expected each of "
            f"{names_text(elements, most=len(elements))} once."
        )
    return order


def _places(tensor: Tensor, joint_names: Sequence[str]) -> tuple[int, ...]:
    """Place of each of the robot's joints in an output."""
    return tuple(int(place) for place in np.argsort(_order(tensor, joint_names, "output")))


def _require_row(tensor: Tensor, size: int, what: str) -> None:
    if tensor.shape != (1, size) or tensor.dtype != "float32":
        raise LeappError(
            f"The network's {what} '{tensor.name}' is {tensor.dtype} of shape {tensor.shape}, expected float32 of "
            f"shape (1, {size})."
        )


def _target(folder: LeappFolder, joint_names: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """The output with joint positions, and the place of each joint in it."""
    targets = [tensor for tensor in folder.outputs if tensor.kind.startswith(TARGET_PREFIX)]
    if [tensor.kind for tensor in targets] != [JOINT_TARGET]:
        found = names_text([f"{tensor.name} ({tensor.kind})" for tensor in targets]) or "(none)"
        raise LeappError(f"The network's outputs to follow are {found}, expected a single one, '{JOINT_TARGET}'.")
    return targets[0].name, _places(targets[0], joint_names)


def _state(folder: LeappFolder, name: str, output: str) -> GraphState:
    """An input that an output flows back to."""
    tensor = next(item for item in folder.inputs if item.name == name)
    source = next(item for item in folder.outputs if item.name == output)
    if (source.shape, source.dtype) != (tensor.shape, tensor.dtype) or tensor.dtype not in STATE_TYPES:
        raise LeappError(
            f"'{output}' is {source.dtype} of shape {source.shape} and flows back to '{name}', {tensor.dtype} of "
            f"shape {tensor.shape}; expected equal ones, {', '.join(STATE_TYPES)}."
        )
    first = folder.initial.get(name)
    if first is None or not first.any():
        return GraphState(name, output, tensor.shape, tensor.dtype)
    if first.shape != tensor.shape:
        raise LeappError(f"The first value of '{name}' has shape {first.shape}, expected {tensor.shape}.")
    return GraphState(name, output, tensor.shape, tensor.dtype, tuple(float(item) for item in first.reshape(-1)))
