"""The policy contract: everything a runtime must know to run a policy, and the reasons to refuse.

It is written at export from the configuration that trained the policy, travels as JSON in full precision inside the
ONNX file's metadata, and is checked against the robot before anything moves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from gantry_deploy.contract.bounds import (
    CONTRACT_RANGES,
    MAX_RATE_HZ,
    check_command,
    check_ranges,
    require,
    require_length,
)
from gantry_deploy.contract.embodiments import load_embodiment
from gantry_deploy.contract.graph_spec import GraphSpec
from gantry_deploy.contract.parts import (
    BODY_POSE,
    BODY_POSE_NAMES,
    BODY_VELOCITY,
    BODY_VELOCITY_NAMES,
    OBJECT_GOAL,
    OBJECT_GOAL_NAMES,
    Acceptance,
    ActionSpec,
    BalanceSpec,
    CameraInput,
    ChunkSpec,
    CommandSpec,
    GaitSpec,
    GoalVelocitySpec,
    GroundSpec,
    InstructionSpec,
    MapWindow,
    ObservationTerm,
    Provenance,
    TrainedRange,
)
from gantry_deploy.errors import ContractError
from gantry_hardware.backends.limits import MAX_GAIN_RATIO, MIN_GAIN_RATIO, gain_limits
from gantry_hardware.errors import UnknownNameError, unknown_name_text
from gantry_hardware.files.bounds import finite
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.structured import from_plain
from gantry_hardware.files.text import MOST_NAMES, names_text, plain_text
from gantry_hardware.model.spec import RobotSpec

__all__ = [
    "BODY_POSE",
    "BODY_POSE_NAMES",
    "BODY_VELOCITY",
    "BODY_VELOCITY_NAMES",
    "CONTRACT_VERSION",
    "METADATA_KEY",
    "NORMALIZATION",
    "OBJECT_GOAL",
    "OBJECT_GOAL_NAMES",
    "Acceptance",
    "ActionSpec",
    "BalanceSpec",
    "CameraInput",
    "ChunkSpec",
    "CommandSpec",
    "GaitSpec",
    "GoalVelocitySpec",
    "GroundSpec",
    "InstructionSpec",
    "MapWindow",
    "ObservationTerm",
    "PolicyContract",
    "Provenance",
    "TrainedRange",
    "check_joint_names",
    "check_numbers",
]

B = TypeVar("B")

CONTRACT_VERSION = 2
"""The version that this runtime writes and understands."""

METADATA_KEY = "gantry_contract"
"""Key of the contract in the ONNX file's ``metadata_props``."""

MAX_TEXT = 256
"""Longest name or other text in a contract."""

INSTRUCTION_TERM = "instruction"
"""Name of the observation term and of the signal that hold an instruction's tokens."""

NORMALIZATION = "inside the graph"
"""The only place of an observation's normalisation that this runtime knows."""


@dataclass(frozen=True)
class PolicyContract:
    """All that a runtime needs. Joint arrays follow ``joint_names``; the robot's canonical order must equal it."""

    robot: str
    """Robot that the policy was trained for."""
    embodiment: str
    """The robot's, a name in the entry-point group ``gantry.embodiments``."""
    rate_hz: float
    """Rate at which the policy must be called."""
    joint_names: tuple[str, ...]
    """Joints in the order of every joint array."""
    joint_lower_rad: tuple[float, ...]
    """Lower limit of the targets."""
    joint_upper_rad: tuple[float, ...]
    """Upper limit of the targets."""
    default_pos_rad: tuple[float, ...]
    """Pose that ``joint_pos`` observations are relative to."""
    stiffness_nm_rad: tuple[float, ...]
    """Proportional gains that the policy was trained with."""
    damping_nm_s_rad: tuple[float, ...]
    """Derivative gains that the policy was trained with."""
    effort_limit_nm: tuple[float, ...]
    """Torque limits that the policy was trained with; never above the robot's, which is checked. The position loop
    runs in the motors, faster than the policy, so a runtime cannot cut its torque: where a limit here is below the
    robot's, the motor controllers must be set to it, or the robot may push harder than it did in training."""
    observations: tuple[ObservationTerm, ...]
    """Terms of the actor's input in order."""
    action: ActionSpec
    """Meaning of the actor's output."""
    command: CommandSpec
    """Commands that the policy accepts."""
    gait: GaitSpec | None = None
    """Gait clock, if the policy has one."""
    map_window: MapWindow | None = None
    """Elevation window, if the policy sees one."""
    body: Any = None
    """Part that the embodiment adds, of its ``body_type``: an :class:`gantry_deploy.contract.arm_spec.ArmSpec`, a
    :class:`gantry_deploy.contract.drive_spec.DriveSpec`; None where it adds nothing."""
    cameras: tuple[CameraInput, ...] = ()
    """Images that the policy sees, in order."""
    chunk: ChunkSpec | None = None
    """Planning of several actions at once; None for a policy that is asked in every step."""
    instruction: InstructionSpec | None = None
    """Instructions that the policy follows; None for a policy that is told nothing in words."""
    recurrent: tuple[str, ...] = ()
    """Names of recurrent state tensors, those of ``graph.states``; empty for a memoryless network."""
    graph: GraphSpec | None = None
    """Wiring of a network that takes raw signals one by one; None for one that takes the observation as a whole."""
    normalization: str = NORMALIZATION
    """Normalisation of observations beyond their terms' scale and clip, which always come before the network."""
    acceptance: Acceptance = field(default_factory=Acceptance)
    """Thresholds of the sim-to-sim gate."""
    trained_for: tuple[TrainedRange, ...] = ()
    """Robots, grounds and disturbances that the policy was trained for; what is absent did not vary in training, or was
    not told."""
    provenance: Provenance = field(default_factory=Provenance)
    """Origin of the policy."""
    version: int = CONTRACT_VERSION
    """Version of this format."""

    def __post_init__(self) -> None:
        n = len(self.joint_names)
        for name in (
            "joint_lower_rad",
            "joint_upper_rad",
            "default_pos_rad",
            "stiffness_nm_rad",
            "damping_nm_s_rad",
            "effort_limit_nm",
        ):
            require_length(name, getattr(self, name), n)
        for name in ("lower", "upper", "max_rate"):
            require_length(f"command.{name}", getattr(self.command, name), len(self.command.names))
        if not self.rate_hz > 0:
            raise ContractError(f"rate_hz is {self.rate_hz}, expected a positive rate.")
        if (self.instruction is not None) != any(term.name == INSTRUCTION_TERM for term in self.observations):
            there, missing = ("has", "no 'instruction'") if self.instruction is None else ("lacks", "an 'instruction'")
            raise ContractError(
                f"The observation {there} the term '{INSTRUCTION_TERM}', and the contract has {missing}."
            )
        if self.graph is not None:
            self._check_graph(self.graph)
        _embodiment(self.embodiment).check_contract(self)

    def _check_graph(self, graph: GraphSpec) -> None:
        """Refuse wiring that does not fit the observation, the joints or the names of the states."""
        graph.check({term.name: term.size for term in self.observations if term.history == 1}, len(self.joint_names))
        states = tuple(state.name for state in graph.states)
        if states != self.recurrent:
            raise ContractError(f"recurrent is {self.recurrent}, expected the names of graph.states: {states}.")
        others = {"cameras": self.cameras, "chunk": self.chunk, "map_window": self.map_window}
        if there := [name for name, value in others.items() if value]:
            raise ContractError(f"The contract has 'graph' and '{there[0]}', which such a network does not take.")

    def body_as(self, kind: type[B]) -> B:
        """The body, which must be of a type.

        Raises:
            ContractError: If the contract has another body, or none.
        """
        if isinstance(self.body, kind):
            return self.body
        raise ContractError(
            f"The contract for '{self.robot}' is of embodiment '{self.embodiment}', and its body is no {kind.__name__}."
        )

    @property
    def joint_limits(self) -> dict[str, tuple[float, float]]:
        """Joint to its lower and upper limit, rad."""
        limits = zip(self.joint_lower_rad, self.joint_upper_rad, strict=True)
        return dict(zip(self.joint_names, limits, strict=True))

    @property
    def dt_s(self) -> float:
        """Time between two calls of the policy."""
        return 1.0 / self.rate_hz

    @property
    def observation_size(self) -> int:
        """Numbers in the actor's input, history included."""
        return sum(term.size * term.history for term in self.observations)

    @property
    def action_size(self) -> int:
        """Numbers in the actor's output."""
        return len(self.action.scale)

    @property
    def is_residual(self) -> bool:
        """Whether ``policy.onnx`` corrects the plan of ``base.onnx`` in every step."""
        return self.chunk is not None and self.chunk.residual

    def planned_steps(self, *, base: bool = False) -> int | None:
        """Actions in the answer of ``policy.onnx``, or of ``base.onnx``; None for a single one, without that axis."""
        return None if self.chunk is None or (self.is_residual and not base) else self.chunk.steps

    def to_json(self) -> str:
        """JSON in full precision: reading it back gives an equal contract."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> PolicyContract:
        """Read a contract.

        Raises:
            ContractError: If it is no JSON, is of another version, or has unknown, missing or ill-typed fields.
        """
        data = parse_json_object(text, "The contract", max_text=MAX_TEXT, error=ContractError)
        version = data.get("version")
        if type(version) is not int or version < 1:
            raise ContractError(f"The contract's version is {plain_text(version)}, expected an integer from 1.")
        if version != CONTRACT_VERSION:
            way = "export the policy again with this one" if version < CONTRACT_VERSION else "update Gantry here"
            raise ContractError(
                f"The contract has version {version}, this runtime understands version {CONTRACT_VERSION}: {way}."
            )
        if isinstance(name := data.get("embodiment"), str) and data.get("body") is not None:
            kind = _embodiment(name).body_type
            if kind is None:
                raise ContractError(f"The contract has a 'body', expected none for embodiment '{name}'.")
            data = data | {"body": from_plain(kind, data["body"], "contract.body", ContractError)}
        return from_plain(cls, data, "contract", ContractError)

    def check_robot(self, spec: RobotSpec) -> None:
        """Refuse a robot that the policy was not trained for.

        Raises:
            ContractError: With both sides of the first difference, or the number that makes no sense.
        """
        check_numbers(self)
        if self.embodiment != spec.embodiment:
            raise ContractError(
                f"The contract for '{self.robot}' is of embodiment '{self.embodiment}', robot '{spec.name}' is of "
                f"'{spec.embodiment}'."
            )
        if self.robot != spec.name:
            raise ContractError(f"The policy was trained for robot '{self.robot}', this robot is '{spec.name}'.")
        check_joint_names(self.joint_names, spec.joint_names, "the contract", f"robot '{spec.name}'")
        pairs = (
            ("joint_lower_rad", "lower_rad", -1),
            ("joint_upper_rad", "upper_rad", +1),
            ("effort_limit_nm", "effort_limit_nm", +1),
        )
        for mine, theirs, side in pairs:
            for joint, asked, allowed in zip(self.joint_names, getattr(self, mine), spec.array(theirs), strict=True):
                if (asked - allowed) * side > 1e-6:
                    raise ContractError(
                        f"Joint '{joint}': the contract's {mine} is {asked}, beyond the robot's {theirs} {allowed}."
                    )
        _embodiment(self.embodiment).check_robot(self, spec)
        self._check_gains(spec)

    def _check_gains(self, spec: RobotSpec) -> None:
        """Refuse gains that the robot was not made for, and joints that nothing would hold or damp."""
        for name, limits in zip(("stiffness_nm_rad", "damping_nm_s_rad"), gain_limits(spec), strict=True):
            for joint, asked, allowed in zip(self.joint_names, getattr(self, name), limits, strict=True):
                if asked > allowed * (1.0 + 1e-6):
                    raise ContractError(
                        f"Joint '{joint}': the contract's {name} is {asked:g}, allowed is {allowed:g}, "
                        f"{MAX_GAIN_RATIO:g} times the robot's {allowed / MAX_GAIN_RATIO:g}."
                    )
        for name in ("stiffness_nm_rad", "damping_nm_s_rad"):
            # A car's drive, a servo of speed, has no stiffness, and the least of it is none.
            for joint, asked, usual in zip(self.joint_names, getattr(self, name), spec.array(name), strict=True):
                if not asked >= MIN_GAIN_RATIO * usual:
                    raise ContractError(
                        f"Joint '{joint}': the contract's {name} is {asked:g}, expected {MIN_GAIN_RATIO * usual:g} or "
                        f"more; the robot's is {usual:g}."
                    )


def check_numbers(contract: PolicyContract) -> None:
    """Refuse numbers that no robot may be moved with: out of range, limits the wrong way round, feet that do not exist.

    Raises:
        ContractError: With the field, the value, and what was expected.
    """
    embodiment = _embodiment(contract.embodiment)
    finite("The contract's rate_hz", contract.rate_hz, embodiment.min_rate_hz, MAX_RATE_HZ, ContractError)
    check_ranges(contract, ranges=CONTRACT_RANGES)
    _require_finite("contract", asdict(contract))
    for (joint, (lower, upper)), default in zip(contract.joint_limits.items(), contract.default_pos_rad, strict=True):
        require(lower <= default <= upper, f"default_pos_rad of '{joint}'", default, f"{lower} to {upper}")
    check_command(contract.command, has_gait=contract.gait is not None)
    embodiment.check_numbers(contract)


def check_joint_names(expected: Sequence[str], found: Sequence[str], expected_by: str, found_in: str) -> None:
    """Refuse joints that differ in name, number or order, and print both sides.

    Raises:
        ContractError: With the two lists, and the near miss where a single name is misspelt.
    """
    if tuple(expected) == tuple(found):
        return
    sides = f"\n  {expected_by}: {names_text(expected)}\n  {found_in}: {names_text(found)}"
    if sorted(expected) == sorted(found):
        raise ContractError(f"Same joints, other order.{sides}")
    missing = [name for name in expected if name not in found]
    if missing:
        raise ContractError(f"{unknown_name_text(f'joint in {found_in}', missing[0], found[:MOST_NAMES])}{sides}")
    extra = [name for name in found if name not in expected]
    raise ContractError(f"{found_in} has joints that {expected_by} does not know: {names_text(extra)}.{sides}")


def _require_finite(where: str, value: object) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _require_finite(f"{where}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _require_finite(f"{where}[{i}]", item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ContractError(f"{where} is {value}, expected a finite number.")


def _embodiment(name: str) -> Any:
    try:
        return load_embodiment(name)
    except UnknownNameError as error:
        raise ContractError(f"The contract: {error}") from error
