"""The policy contract: everything a runtime must know to run a policy, and the reasons to refuse.

It is written at export from the configuration that trained the policy, travels as JSON in full precision inside the
ONNX file's metadata, and is checked against the robot before anything moves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from gantry_deploy.contract.arm_spec import JOINT_TARGET, OBJECT_GOAL, OBJECT_GOAL_NAMES, ArmSpec, CameraInput
from gantry_deploy.contract.bounds import (
    CONTRACT_RANGES,
    MAX_RATE_HZ,
    MIN_RATE_HZ,
    check_command,
    check_joint_action,
    check_ranges,
)
from gantry_deploy.contract.drive_spec import DRIVE_TARGET, DriveSpec, LidarLayout
from gantry_deploy.contract.footstep_check import check_steps
from gantry_deploy.contract.footstep_spec import STEP_NAMES, STEP_TARGET, StepsSpec
from gantry_deploy.contract.parts import (
    BODY_POSE,
    BODY_POSE_NAMES,
    BODY_VELOCITY,
    BODY_VELOCITY_NAMES,
    Acceptance,
    ActionSpec,
    BalanceSpec,
    ChunkSpec,
    CommandSpec,
    GaitSpec,
    GoalVelocitySpec,
    GroundSpec,
    MapWindow,
    ObservationTerm,
    Provenance,
)
from gantry_deploy.errors import ContractError
from gantry_hardware.bounds import finite
from gantry_hardware.errors import unknown_name_text
from gantry_hardware.json_file import parse_json_object
from gantry_hardware.limits import MAX_GAIN_RATIO, MIN_GAIN_RATIO, gain_limits
from gantry_hardware.spec import RobotSpec
from gantry_hardware.structured import from_plain
from gantry_hardware.text import MOST_NAMES, names_text, plain_text

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
    "ArmSpec",
    "BalanceSpec",
    "CameraInput",
    "ChunkSpec",
    "CommandSpec",
    "DriveSpec",
    "GaitSpec",
    "GoalVelocitySpec",
    "GroundSpec",
    "LidarLayout",
    "MapWindow",
    "ObservationTerm",
    "PolicyContract",
    "Provenance",
    "check_joint_names",
    "check_numbers",
]

CONTRACT_VERSION = 1
"""Newest version that this runtime understands."""

METADATA_KEY = "gantry_contract"
"""Key of the contract in the ONNX file's ``metadata_props``."""

MAX_TEXT = 256
"""Longest name or other text in a contract."""

NORMALIZATION = "inside the graph"
"""The only place of an observation's normalisation that this runtime knows."""


@dataclass(frozen=True)
class PolicyContract:
    """All that a runtime needs. Joint arrays follow ``joint_names``; the robot's canonical order must equal it."""

    robot: str
    """Robot that the policy was trained for."""
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
    arm: ArmSpec | None = None
    """Geometry and limits of an arm; None for robots that are none."""
    drive: DriveSpec | None = None
    """Dimensions and limits of a car, and what it sees; None for robots that are none."""
    chunk: ChunkSpec | None = None
    """Planning of several actions at once; None for a policy that is asked in every step."""
    recurrent: tuple[str, ...] = ()
    """Names of recurrent state tensors; empty for a memoryless network."""
    normalization: str = NORMALIZATION
    """Normalisation of observations beyond their terms' scale and clip, which always come before the network."""
    acceptance: Acceptance = field(default_factory=Acceptance)
    """Thresholds of the sim-to-sim gate."""
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
            _require_length(name, getattr(self, name), n)
        actions = n if self.arm is None else self.arm.action_size(self.action.kind, n)
        steps = self.gait is not None and self.gait.steps is not None
        if (self.action.kind == STEP_TARGET) != steps:
            raise ContractError(
                f"The contract's action.kind is '{self.action.kind}' {'with' if steps else 'without'} 'gait.steps', "
                f"expected '{STEP_TARGET}' with them and another kind without."
            )
        if self.drive is not None:
            actions = self._drive_actions(self.drive)
        _require_length("action.scale", self.action.scale, actions)
        _require_length("action.offset_rad", self.action.offset_rad, actions)
        if self.arm is not None:
            self.arm.check_joints(self.joint_names)
        for name in ("lower", "upper", "max_rate"):
            _require_length(f"command.{name}", getattr(self.command, name), len(self.command.names))
        if self.gait is not None:
            _require_length("gait.joint_foot", self.gait.joint_foot, n)
            _require_length("gait.joint_gain", self.gait.joint_gain, n)
            if self.gait.foot_x_m:
                feet = len(self.gait.foot_offset)
                _require_length("gait.foot_x_m", self.gait.foot_x_m, feet)
                _require_length("gait.foot_y_m", self.gait.foot_y_m, feet)
                _require_length("gait.stride_x_rad_m", self.gait.stride_x_rad_m, n)
                _require_length("gait.stride_y_rad_m", self.gait.stride_y_rad_m, n)
            for name in ("sway_rad", "stride_yaw"):
                if getattr(self.gait, name):
                    _require_length(f"gait.{name}", getattr(self.gait, name), n)
            if self.gait.balance is not None:
                for name, values in vars(self.gait.balance).items():
                    _require_length(f"gait.balance.{name}", values, n)
            if self.gait.steps is not None:
                self._check_steps(self.gait.steps, self.gait)
            if self.gait.ground is not None:
                _require_length("gait.ground.lift_rad_m", self.gait.ground.lift_rad_m, n)
                if self.map_window is None or not self.gait.foot_x_m:
                    raise ContractError("A gait that follows the ground needs 'map_window' and 'gait.foot_x_m'.")
        if not self.rate_hz > 0:
            raise ContractError(f"rate_hz is {self.rate_hz}, expected a positive rate.")

    def _check_steps(self, steps: StepsSpec, gait: GaitSpec) -> None:
        """Legs that are told where to step: of three joints each, with a map to step on and no gait of another kind."""
        _require_length("gait.steps.legs", steps.legs, len(gait.foot_offset))
        _require_length("joint_names", self.joint_names, 3 * len(steps.legs))
        _require_length("action.scale", self.action.scale, len(STEP_NAMES))
        _require(not any(self.action.offset_rad), "action.offset_rad", self.action.offset_rad, "zeros for steps")
        order = tuple(i // 3 for i in range(len(self.joint_names)))
        _require(gait.joint_foot == order, "gait.joint_foot", gait.joint_foot, f"{order} for steps")
        for name in ("amplitude_rad", "lead_s", "foot_x_m", "sway_rad", "stride_yaw", "balance", "ground"):
            _require(not getattr(gait, name), f"gait.{name}", getattr(gait, name), "none beside 'gait.steps'")
        if self.map_window is None:
            raise ContractError("Legs that are told where to step need 'map_window'.")

    def _drive_actions(self, drive: DriveSpec) -> int:
        """Numbers of an action of a car, after its parts have been found to fit each other."""
        for name in ("arm", "gait", "map_window"):
            _require(getattr(self, name) is None, name, "given", "none beside 'drive'")
        _require(len(self.joint_names) == 2, "joint_names", self.joint_names, "two for a car, steering and drive")
        _require(self.action.kind == DRIVE_TARGET, "action.kind", self.action.kind, f"'{DRIVE_TARGET}' for a car")
        # The decoder scales by the car's limits; a second scale could contradict them.
        _require(self.action.scale == (1.0, 1.0), "action.scale", self.action.scale, "(1.0, 1.0) for a car")
        _require(self.action.offset_rad == (0.0, 0.0), "action.offset_rad", self.action.offset_rad, "zeros for a car")
        _require(self.action.clip <= 1.0, "action.clip", self.action.clip, "at most 1 for a car")
        limit = min(-self.joint_lower_rad[0], self.joint_upper_rad[0])
        _require(
            drive.steering_limit_rad <= limit + 1e-9,
            "drive.steering_limit_rad",
            drive.steering_limit_rad,
            f"at most the joint's {limit:g} rad",
        )
        return 2

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

    def to_json(self) -> str:
        """JSON in full precision: reading it back gives an equal contract."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> PolicyContract:
        """Read a contract.

        Raises:
            ContractError: If it is no JSON, is of a newer version, or has unknown, missing or ill-typed fields.
        """
        data = parse_json_object(text, "The contract", max_text=MAX_TEXT, error=ContractError)
        version = data.get("version")
        if type(version) is not int or version < 1:
            raise ContractError(f"The contract's version is {plain_text(version)}, expected an integer from 1.")
        if version > CONTRACT_VERSION:
            raise ContractError(
                f"The contract has version {version}, this runtime understands up to {CONTRACT_VERSION}. "
                "Update Gantry on this machine, or export the policy again with the older one."
            )
        return from_plain(cls, data, "contract", ContractError)

    def check_robot(self, spec: RobotSpec) -> None:
        """Refuse a robot that the policy was not trained for.

        Raises:
            ContractError: With both sides of the first difference, or the number that makes no sense.
        """
        check_numbers(self)
        if (self.drive is None) != (spec.car is None):
            mine = "describes no car ('drive' is null)" if self.drive is None else "drives a car ('drive' is given)"
            raise ContractError(
                f"The contract for '{self.robot}' {mine}, robot '{spec.name}' is of kind '{spec.kind}'."
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
        if self.arm is not None and self.arm.chain != spec.chain:
            raise ContractError(
                f"The contract's arm has another geometry: {self.arm.chain}, '{spec.name}': {spec.chain}."
            )
        if self.drive is not None and spec.car is not None:
            self.drive.check_car(spec.car, spec.name)
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
    if contract.drive is None:
        finite("The contract's rate_hz", contract.rate_hz, MIN_RATE_HZ, MAX_RATE_HZ, ContractError)
    check_ranges(contract, ranges=CONTRACT_RANGES)
    _require_finite("contract", asdict(contract))
    joint_limits = list(zip(contract.joint_names, contract.joint_lower_rad, contract.joint_upper_rad, strict=True))
    for (joint, lower, upper), default in zip(joint_limits, contract.default_pos_rad, strict=True):
        _require(lower <= default <= upper, f"default_pos_rad of '{joint}'", default, f"{lower} to {upper}")
    if contract.action.kind == JOINT_TARGET:
        limits = {name: (lower, upper) for name, lower, upper in joint_limits}
        check_joint_action(contract.action, limits, relative=contract.arm is not None and contract.arm.relative)
    check_command(contract.command, has_gait=contract.gait is not None)
    if contract.gait is not None:
        _check_gait(contract, contract.gait)


def _check_gait(contract: PolicyContract, gait: GaitSpec) -> None:
    """Refuse a gait whose feet do not exist, or whose swing moves a joint by more than its range."""
    if gait.steps is not None and contract.map_window is not None:
        check_steps(gait.steps, gait, contract.action, contract.map_window, contract.stiffness_nm_rad)
    feet = len(gait.foot_offset)
    limits = zip(contract.joint_lower_rad, contract.joint_upper_rad, strict=True)
    numbers = zip(contract.joint_names, gait.joint_foot, gait.joint_gain, limits, strict=True)
    for joint, foot, gain, (lower, upper) in numbers:
        _require(0 <= foot < feet, f"gait.joint_foot of '{joint}'", foot, f"0 to {feet - 1}")
        swing = abs(gait.amplitude_rad * gain)
        what = f"gait.amplitude_rad times joint_gain of '{joint}'"
        _require(swing <= upper - lower, what, swing, f"at most {upper - lower:g}, its range")


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


def _require(holds: bool, what: str, value: object, expected: str) -> None:
    if not holds:
        raise ContractError(f"The contract's {what} is {value}, expected {expected}.")


def _require_finite(where: str, value: object) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _require_finite(f"{where}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _require_finite(f"{where}[{i}]", item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ContractError(f"{where} is {value}, expected a finite number.")


def _require_length(name: str, values: Sequence[object], expected: int) -> None:
    if len(values) != expected:
        raise ContractError(f"{name} has {len(values)} entries, expected {expected}.")
