"""A bundle's observation, network and decoder as one ONNX graph: raw signals in, absolute joint targets out.

Observation and decoder are not written a second time: torch traces the very functions that train a policy and drive a
robot, and ``onnx.compose`` joins what it finds with the unchanged network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from onnx import TensorProto, compose, helper, numpy_helper, version_converter
from torch import Tensor, nn

from gantry_deploy.actions.commands import shape_command
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import LeappError
from gantry_deploy.observations.builder import TERMS, ObservationBuilder, Signals, needed_signals
from gantry_deploy.policy.golden import VELOCITY_ARRAY
from gantry_deploy.policy.runner import WRAP_PERIODS
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.export import to_onnx

JOINT_POS, JOINT_VEL, ROTATION, ANG_VEL, LIN_VEL, COMMAND = (
    "joint_pos",
    "joint_vel",
    "base_rotation",
    "base_ang_vel",
    "base_lin_vel",
    "velocity_command",
)
"""Inputs for signals; the rotation is x, y, z, w, as other writers of LEAPP bundles have it."""
SEEN = (JOINT_POS, JOINT_VEL, ROTATION, ANG_VEL)
"""Signals that the decoder looks at too."""
LAST_ACTION, LAST_COMMAND, STEP, HISTORY, FRESH = "last_action", "last_command", "step", "history", "fresh"
"""States that flow back: input ``<name>_in``, output ``<name>_out``. Fresh is 1 before there is a history, else 0."""
TARGET, KP, KD = "joint_pos_target", "joint_pos_kp_gains", "joint_pos_kd_gains"
"""Outputs to follow."""
OPSET, IR_VERSION = 20, 10
"""Versions of operators and format, those of torch's exporter here; other networks are converted."""
_OBSERVATION, _ACTION, _TIME, _SHAPED = "gantry_observation", "gantry_action", "gantry_time_s", "gantry_command"
_SEEN = "gantry_seen_"


@dataclass(frozen=True)
class Layout:
    """Sizes of a graph's inputs and states."""

    signals: dict[str, int]
    """Input to its number of values."""
    states: dict[str, tuple[int, ...]]
    """State that flows back, to its shape."""

    @property
    def names(self) -> list[str]:
        """All inputs in order."""
        return [*self.signals, *(f"{name}_in" for name in self.states)]

    @property
    def passed(self) -> list[str]:
        """Inputs of the decoder beside the action, in order; time and command where there are some."""
        found = ([_TIME] if STEP in self.states else []) + ([_SHAPED] if COMMAND in self.signals else [])
        return found + [_SEEN + name for name in SEEN]

    def examples(self) -> tuple[Tensor, ...]:
        """An example (1, k) of every input in order, in SI units: a robot that stands, in the first step."""
        found = [torch.zeros(1, size) for size in self.signals.values()]
        found[list(self.signals).index(ROTATION)][0, 3] = 1.0
        return (*found, *(torch.full(shape, float(name == FRESH)) for name, shape in self.states.items()))


def layout_of(contract: PolicyContract) -> Layout:
    """Inputs and states of a contract's graph.

    Raises:
        LeappError: If the contract holds what a LEAPP bundle has no place for, with its name.
    """
    _refuse(contract)
    n, commands = len(contract.joint_names), len(contract.command.names)
    signals = {JOINT_POS: n, JOINT_VEL: n, ROTATION: 4, ANG_VEL: 3}
    if VELOCITY_ARRAY in needed_signals(contract):
        signals[LIN_VEL] = 3
    states: dict[str, tuple[int, ...]] = {LAST_ACTION: (1, contract.action_size)}
    if commands:
        signals[COMMAND] = commands
        if any(contract.command.max_rate):
            states[LAST_COMMAND] = (1, commands)
    # Terms of other packages may look at the clock as well.
    if contract.gait is not None or any(term.name not in TERMS for term in contract.observations):
        states[STEP] = (1, 1)
    kept = [term for term in contract.observations if term.history > 1]
    if kept:
        states[HISTORY] = (1, max(term.history for term in kept), sum(term.size for term in kept))
        states[FRESH] = (1, 1)
    return Layout(signals, states)


def _refuse(contract: PolicyContract) -> None:
    """Refuse what a LEAPP bundle has no place for."""
    reasons = {
        "map_window": "LEAPP has no signal for an elevation map",
        "cameras": "LEAPP has no signal for pictures",
        "chunk": "the queue of a plan is outside of the network",
        "instruction": "LEAPP has no signal for words",
        "body": f"targets of embodiment '{contract.embodiment}' follow from more than the signals of a step",
        "graph": "it came from a LEAPP bundle, which can be used as it was",
        "recurrent": "the network's own state is not joined",
    }
    for name, reason in reasons.items():
        if getattr(contract, name):
            raise LeappError(f"The policy cannot be a LEAPP bundle: its contract has '{name}', and {reason}.")
    if contract.command.names and contract.command.kind != "command/body/velocity":
        raise LeappError(
            f"The policy cannot be a LEAPP bundle: its command is '{contract.command.kind}', expected "
            "'command/body/velocity' or none; LEAPP's other kinds mean something else."
        )
    if others := sorted(needed_signals(contract).keys() - {VELOCITY_ARRAY}):
        raise LeappError(
            f"The policy cannot be a LEAPP bundle: it observes '{others[0]}', for which LEAPP has no signal."
        )


class _Observing(nn.Module):
    """Signals and states to the observation, the states that follow from it, and what the decoder looks at."""

    def __init__(self, contract: PolicyContract, layout: Layout) -> None:
        super().__init__()
        self.contract, self.layout = contract, layout
        self.builder = ObservationBuilder(contract, torch.zeros(1, 1))
        gait = contract.gait
        self.wrap = float("inf") if gait is None else WRAP_PERIODS / gait.frequency_hz * contract.rate_hz

    @property
    def outputs(self) -> list[str]:
        """Names in order."""
        kept = [name for name in self.layout.states if name != LAST_ACTION]
        return [_OBSERVATION, *self.layout.passed, *(f"{name}_out" for name in kept)]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Inputs in the order of the layout."""
        given = dict(zip(self.layout.names, inputs, strict=True))
        signals, ticks = self.signals(given), given.get(f"{STEP}_in")
        if HISTORY in self.layout.states:
            self.builder.past = given[f"{HISTORY}_in"], given[f"{FRESH}_in"][:, 0] > 0.5
        following = {_OBSERVATION: self.builder(signals), _TIME: signals.time_s, _SHAPED: signals.command}
        following |= {_SEEN + name: given[name] + 0.0 for name in SEEN}  # an input cannot be an output as well
        if LAST_COMMAND in self.layout.states:
            following[f"{LAST_COMMAND}_out"] = signals.command + 0.0
        if ticks is not None:
            after = ticks + 1.0
            following[f"{STEP}_out"] = torch.where(after >= self.wrap, after - self.wrap, after)
        if HISTORY in self.layout.states:
            past = self.builder.past
            assert past is not None, "history is kept"
            # Always 0, and not a constant, which torch would give a name of its own.
            following |= {f"{HISTORY}_out": past[0], f"{FRESH}_out": 0.0 * given[f"{FRESH}_in"]}
        return tuple(following[name] for name in self.outputs)

    def signals(self, given: dict[str, Tensor]) -> Signals:
        """Signals of the step, as the runtime makes them of a state."""
        ticks = given.get(f"{STEP}_in")
        command = given.get(COMMAND, torch.zeros(1, 0))
        if COMMAND in given:
            before = given.get(f"{LAST_COMMAND}_in", torch.zeros_like(command))
            command = shape_command(self.contract.command, command, before, self.contract.dt_s)
        return Signals(
            joint_pos_rad=given[JOINT_POS],
            joint_vel_rad_s=given[JOINT_VEL],
            quat_base_to_world_wxyz=_wxyz(given[ROTATION]),
            ang_vel_base_in_base_rad_s=given[ANG_VEL],
            command=command,
            last_action=given[f"{LAST_ACTION}_in"],
            time_s=torch.zeros(1) if ticks is None else (ticks / self.contract.rate_hz)[:, 0],
            lin_vel_base_in_base_m_s=given.get(LIN_VEL),
        )


class _Acting(nn.Module):
    """The network's action, and what the observation was made of, to joint targets and the remembered action."""

    def __init__(self, contract: PolicyContract, layout: Layout) -> None:
        super().__init__()
        self.passed = layout.passed
        self.decoder = embodiment_of(contract).make_decoder(contract, torch.zeros(1, 1))

    def forward(self, action: Tensor, *passed: Tensor) -> tuple[Tensor, Tensor]:
        """The action and what is passed on, in the order of the layout."""
        given = dict(zip(self.passed, passed, strict=True))
        pos, vel, quat, ang_vel = (given[_SEEN + name] for name in SEEN)
        last = self.decoder.clip(action)
        command, time_s = given.get(_SHAPED, torch.zeros(1, 0)), given.get(_TIME, torch.zeros(1))
        signals = Signals(pos, vel, _wxyz(quat), ang_vel, command, last, time_s)
        targets = self.decoder(action, signals)
        others = (targets.vel_rad_s, targets.effort_nm, self.decoder.targets)
        if any(values is not None for values in others):
            raise LeappError(
                "The policy cannot be a LEAPP bundle: its targets have velocities or efforts, or follow from "
                "earlier ones."
            )
        return targets.pos_rad, last


def _wxyz(quat_xyzw: Tensor) -> Tensor:
    """Quaternions (N, 4) with w first instead of last."""
    return torch.cat((quat_xyzw[:, 3:], quat_xyzw[:, :3]), dim=1)


def leapp_graph(model_bytes: bytes, contract: PolicyContract, metadata: dict[str, str]) -> onnx.ModelProto:
    """The graph of a bundle.

    Args:
        model_bytes: The bundle's network.
        contract: The bundle's.
        metadata: What goes into the file beside the graph.

    Raises:
        LeappError: If the contract holds what a LEAPP bundle has no place for, or the parts cannot be joined.
        ContractError: If a term needs something that no signal tells.
    """
    layout = layout_of(contract)
    observing, acting = _Observing(contract, layout).eval(), _Acting(contract, layout).eval()
    examples = layout.examples()
    with torch.inference_mode():  # A term or decoder that cannot do with these signals says so here.
        seen = dict(zip(observing.outputs, observing(*examples), strict=True))
        fed = (torch.zeros(1, contract.action_size), *(seen[name] for name in layout.passed))
        acting(*fed)
    try:
        network = _of_opset(onnx.load_from_string(model_bytes))
        first = to_onnx(observing, examples, layout.names, observing.outputs)
        last = to_onnx(acting, fed, [_ACTION, *layout.passed], [TARGET, f"{LAST_ACTION}_out"])
        return _joined(first, network, last, contract, layout, metadata)
    except (MappingError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise LeappError(f"The policy's parts cannot be joined to a LEAPP graph: {error}") from error


def _joined(
    first: onnx.ModelProto,
    network: onnx.ModelProto,
    last: onnx.ModelProto,
    contract: PolicyContract,
    layout: Layout,
    metadata: dict[str, str],
) -> onnx.ModelProto:
    """Observation, network and decoder one behind the other, with gains as constant outputs."""
    parts = [_prepared(part, name) for part, name in ((first, "observe/"), (network, "network/"), (last, "act/"))]
    first, network, last = parts
    asked, answered = network.graph.input[0].name, network.graph.output[0].name
    model = compose.merge_models(first, network, io_map=[(_OBSERVATION, asked)])
    passed = [(item.name, item.name) for item in last.graph.input if item.name in layout.passed]
    model = compose.merge_models(model, last, io_map=[(answered, _ACTION), *passed])
    states = [f"{name}_out" for name in layout.states]
    _order(model.graph, layout.names, [TARGET, *states])
    for name, values in ((KP, contract.stiffness_nm_rad), (KD, contract.damping_nm_s_rad)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([values], np.float32), f"{name}_value"))
        model.graph.node.append(helper.make_node("Identity", [f"{name}_value"], [name], name=f"{name}_node"))
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, len(values))))
    versions = {item.domain: item.version for item in model.opset_import}
    del model.opset_import[:], model.metadata_props[:]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())
    helper.set_model_props(model, metadata)
    model.producer_name, model.doc_string = (
        "gantry",
        f"Policy of Gantry for robot '{contract.robot}', as a LEAPP graph.",
    )
    onnx.checker.check_model(model)
    return model


def _of_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with the version of the standard operators that torch writes here."""
    versions = {item.domain: item.version for item in model.opset_import}
    return model if versions.get("") == OPSET else version_converter.convert_version(model, OPSET)


def _prepared(model: onnx.ModelProto, prefix: str) -> onnx.ModelProto:
    """A part with inner names of its own; names of inputs and outputs stay."""
    model = compose.add_prefix(model, prefix, rename_inputs=False, rename_outputs=False)
    model.ir_version = IR_VERSION
    return model


def _order(graph: onnx.GraphProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Inputs and outputs by name in an order; what else there is goes."""
    for field, names in ((graph.input, inputs), (graph.output, outputs)):
        found = {item.name: item for item in field}
        kept = [onnx.ValueInfoProto.FromString(found[name].SerializeToString()) for name in names]
        del field[:]
        field.extend(kept)
