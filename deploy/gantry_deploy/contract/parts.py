"""Parts of a policy contract: plain records, each field with its unit and frame."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_deploy.contract.footstep_spec import StepsSpec
from gantry_deploy.errors import ContractError
from gantry_mapping.config import MappingCfg

BODY_VELOCITY = "command/body/velocity"
"""Semantic kind of a command that asks for a planar velocity of the base."""
BODY_VELOCITY_NAMES = ("lin_vel_x_base_m_s", "lin_vel_y_base_m_s", "ang_vel_z_base_rad_s")
"""The only names and order of such a command: gait, evaluation and recordings take the numbers by their place."""
BODY_POSE = "command/body/pose"
"""Semantic kind of a command that asks for a place and a heading of the base."""
BODY_POSE_NAMES = ("goal_x_base_yaw_m", "goal_y_base_yaw_m", "sin_heading_error", "cos_heading_error")
"""The only names and order of such a command: the goal's place in the base's yaw frame, and goal minus base heading.
Zeros ask to stay, with any heading."""
OBJECT_GOAL = "command/body/position"
"""Semantic kind of a command that says where an object belongs."""
OBJECT_GOAL_NAMES = ("goal_x_base_m", "goal_y_base_m", "goal_z_base_m")
"""The only names and order of such a command: the place of the object's origin in the arm's base frame."""
MAX_WORDS = 16
"""Most words of an instruction; shorter ones are filled up."""
MAX_VOCABULARY = 1000
"""Most words that a policy knows."""


@dataclass(frozen=True)
class CameraInput:
    """A colour image that the policy sees, uint8, channels first."""

    name: str
    """Name of the camera, for example ``wrist``; the network's input is ``image/<name>``."""
    height: int
    """Rows."""
    width: int
    """Columns."""


@dataclass(frozen=True)
class ObservationTerm:
    """One term of the actor's observation; terms are concatenated in order."""

    name: str
    """A function in :data:`gantry_deploy.observations.builder.TERMS`."""
    size: int
    """Numbers in one frame of the term, before history."""
    scale: float = 1.0
    """Factor applied after the clip, before the network: its input is scale * clip(value)."""
    clip: float | None = None
    """Values are limited to [-clip, clip] before scaling; None for no limit."""
    history: int = 1
    """Frames that are stacked, oldest first, flattened; 1 for the newest alone."""
    kind: str = ""
    """Semantic kind of the raw signal in LEAPP's vocabulary, for example ``state/joint/position``."""
    frame: str = ""
    """Frame of the numbers, for example ``base``; empty where it has none."""
    unit: str = ""
    """SI unit before scaling; empty where it has none."""
    point_in_base_m: tuple[float, ...] = ()
    """Point fixed to the base, (3,) in its frame, that ``base_lin_vel`` is the velocity of; empty for its origin."""
    joints: tuple[str, ...] = ()
    """Joints that a term of joints shows, in its order; empty for all of the contract."""


@dataclass(frozen=True)
class ActionSpec:
    """Conversion of a network output to joint targets: offset + scale * clip(action) + gait, then the joint limits.

    Of the kind ``target/body/steps`` scale * clip(action) are steps (``STEP_NAMES``), which
    ``gait.steps`` turns into joint targets.
    """

    kind: str
    """Semantic kind of the output: ``target/joint/position``, or of what arms, cars and stepping legs are told."""
    scale: tuple[float, ...]
    """Per joint, rad per unit of action; per number of another kind's action, its own unit."""
    offset_rad: tuple[float, ...]
    """Per joint, the target at zero action; zeros for steps."""
    clip: float
    """Actions are limited to [-clip, clip]."""


@dataclass(frozen=True)
class BalanceSpec:
    """Joint targets in proportion to tilt and turning rate of the base, one gain each in stance and in swing.

    Stance gains push the base upright over the foot, swing gains place the foot where the body is going to.
    """

    joint_axis: tuple[int, ...]
    """Per joint, what it answers: 0 roll, 1 pitch, both positive about the base's x and y axes."""
    stance_tilt: tuple[float, ...]
    """Per joint, rad per rad of tilt while its foot is in stance; a clock at rest has every foot in stance."""
    stance_rate_s: tuple[float, ...]
    """Per joint, rad per rad/s of turning rate in stance."""
    swing_tilt: tuple[float, ...]
    """Per joint, rad per rad of tilt while its foot swings."""
    swing_rate_s: tuple[float, ...]
    """Per joint, rad per rad/s of turning rate in swing."""


@dataclass(frozen=True)
class GroundSpec:
    """Feet that stand higher where the ground is higher, as the contract's map window shows it.

    What counts is the ground under a foot over the mean of all feet, so that a map whose height has drifted does no
    harm. A swinging foot clears the highest of where it is, where it will land, and half way.
    """

    lift_rad_m: tuple[float, ...]
    """Per joint, rad per metre that its foot is raised."""
    rise_m: float = 0.25
    """Feet are raised by no more than this."""
    drop_m: float = 0.25
    """Feet are lowered by no more than this."""
    deep_m: float = 0.35
    """Ground that lies deeper than this below the highest foot's is taken to lie there: a foot in the air over a hole
    shall not draw the others down."""
    level_tilt: float = 0.0
    """Standing feet on the side that the base leans to are pushed down, as if it leant this share of its tilt more."""
    level_rate_s: float = 0.0
    """Likewise per rad/s of turning rate. The loop's delay limits it: twice what helps topples the robot."""
    level_m: float = 0.08
    """Feet are moved by no more than this to level the base."""


@dataclass(frozen=True)
class GaitSpec:
    """A clock that lifts the feet in turn; it feeds the observation, and is added to the joint targets or drives the
    legs of ``steps``, which need no more of it than frequency, duty and the feet's phases."""

    frequency_hz: float
    """Steps of one foot per second."""
    duty: float
    """Share of a period in which a foot is on the ground."""
    foot_offset: tuple[float, ...]
    """Per foot, phase in periods."""
    amplitude_rad: float
    """Peak of the swing term, before ``joint_gain``."""
    lead_s: float
    """Time by which the feed-forward runs ahead of the clock, to make up for the position loop's lag."""
    joint_foot: tuple[int, ...]
    """Per joint, the index of the foot at the end of its leg."""
    joint_gain: tuple[float, ...]
    """Per joint, factor on the swing term; 0 for joints that it does not move."""
    stand_below: float
    """The clock rests, feet on the ground, while the norm of the command is smaller than this."""
    foot_x_m: tuple[float, ...] = ()
    """Per foot, its position ahead of the base; empty for a clock without strides."""
    foot_y_m: tuple[float, ...] = ()
    """Per foot, its position to the left of the base."""
    stride_x_rad_m: tuple[float, ...] = ()
    """Per joint, rad per metre of forward displacement of its foot."""
    stride_y_rad_m: tuple[float, ...] = ()
    """Per joint, rad per metre of lateral displacement of its foot."""
    sway_rad: tuple[float, ...] = ()
    """Per joint, amplitude of a sine at the clock's frequency, which moves the weight over the standing foot; empty for
    none."""
    sway_offset: float = 0.0
    """Phase of that sine, in periods."""
    stride_yaw: tuple[float, ...] = ()
    """Per joint, rad per rad that its foot turns; empty for feet that do not turn."""
    stride_lag: tuple[float, float] = (0.0, 0.0)
    """Forward and lateral, in half strides: how far all feet are set back against the commanded velocity, so that the
    body leans into it."""
    balance: BalanceSpec | None = None
    """Answers to tilt and turning rate; None for none."""
    ground: GroundSpec | None = None
    """Answers to the height of the ground under the feet; None for none. It takes strides and a map window."""
    steps: StepsSpec | None = None
    """Legs that the policy tells where to step, instead of joint targets; None for none. It takes a map window."""


@dataclass(frozen=True)
class GoalVelocitySpec:
    """The velocity that a goal amounts to for the gait: towards it, then into its heading."""

    speed_m_s: float = 0.8
    """Speed far from the goal."""
    lateral_m_s: float = 0.3
    """Largest sideways part of it."""
    speed_gain_s: float = 1.0
    """Speed near the goal, per metre."""
    yaw_rate_rad_s: float = 1.0
    """Largest turning rate."""
    yaw_gain_s: float = 1.5
    """Turning rate per radian."""
    near_m: float = 0.5
    """Nearer than this the goal's heading counts, farther than twice this the goal's direction does."""
    stop_m: float = 0.25
    """No velocity within this distance."""
    stop_rad: float = 0.2
    """No turning within this heading error, once the place is reached."""


@dataclass(frozen=True)
class CommandSpec:
    """The command that the policy was trained to follow."""

    kind: str
    """Semantic kind, ``command/body/velocity`` or ``command/body/pose`` for locomotion."""
    names: tuple[str, ...]
    """Names with frame and unit, for example ``lin_vel_x_base_m_s``."""
    lower: tuple[float, ...]
    """Smallest trained value of each."""
    upper: tuple[float, ...]
    """Largest trained value of each."""
    max_rate: tuple[float, ...]
    """Largest change of each per second; 0 for no limit."""
    goal_velocity: GoalVelocitySpec | None = None
    """Velocity towards the goal that drives the gait of a policy that walks to goals; None where the command itself
    does, or nothing.
    """


@dataclass(frozen=True)
class MapWindow:
    """The patch of elevation map that a perceptive policy looks at, in the base's yaw frame."""

    rows: int
    """Cells along x."""
    cols: int
    """Cells along y."""
    resolution_m: float
    """Edge of a cell."""
    center_x_m: float
    """Centre of the window ahead of the base."""
    center_y_m: float
    """Centre of the window to the left of the base."""
    channels: tuple[str, ...]
    """Layers in order: ``elevation``, and ``uncertainty`` where the map has it."""
    nominal_base_height_m: float = 0.0
    """Added to the ground's height over the base, so that flat ground under a standing robot is about 0."""
    mapping: MappingCfg | None = None
    """Setup of the mapping that made the map in training; on a robot, its own cameras take the place of these. None
    where the map was made of the true ground."""
    mapper_sha256: str = ""
    """SHA-256 of that mapping's network; empty for one without a network."""


@dataclass(frozen=True)
class ChunkSpec:
    """A policy that plans several actions at once and executes the first of them before it plans again.

    The graphs are stateless: the caller keeps the queue, and empties it whenever the policy starts or an episode
    begins. ``policy.onnx`` gives the plan, (1, steps, n) actions. With ``residual`` it is ``base.onnx`` that gives the
    plan, and ``policy.onnx`` is asked in every step with the plan's action of that step as its further input
    ``base_action`` (1, n); it answers with the action to execute (1, n), the sum and its limits inside the graph
    (ResFiT, arXiv 2509.19301).
    """

    steps: int
    """Actions in a plan."""
    execute: int
    """Number of them that are executed before the next plan."""
    ensemble_decay: float | None = None
    """Decay of the ensemble where plans overlap: the i-th oldest counts exp(-decay i); None follows the newest
    alone.
    """
    residual: bool = False
    """Whether a second network corrects the plan in every step."""
    base_sha256: str = ""
    """SHA-256 of ``base.onnx``; empty without ``residual``, and until the export knows it."""

    def __post_init__(self) -> None:
        if not 1 <= self.execute <= self.steps:
            raise ContractError(f"chunk.execute is {self.execute}, expected 1 to chunk.steps, which is {self.steps}.")
        if self.ensemble_decay is not None and not self.ensemble_decay >= 0.0:
            raise ContractError(f"chunk.ensemble_decay is {self.ensemble_decay}, expected 0 or more.")
        if self.base_sha256 and not self.residual:
            raise ContractError("chunk.base_sha256 is given, and chunk.residual is false: there is no base then.")


@dataclass(frozen=True)
class InstructionSpec:
    """Instructions in plain words that a policy follows; its observation has the term ``instruction``."""

    vocabulary: tuple[str, ...]
    """Words that were read in training, lower case; tokens are their places."""
    examples: tuple[str, ...] = ()
    """Some instructions of the training, for people."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.vocabulary) <= MAX_VOCABULARY or len(set(self.vocabulary)) != len(self.vocabulary):
            raise ContractError(
                f"instruction.vocabulary has {len(self.vocabulary)} words, expected 1 to {MAX_VOCABULARY}, each once."
            )
        for word in self.vocabulary:
            if not (word.isascii() and word.isalnum() and word == word.lower()):
                raise ContractError(f"instruction.vocabulary has '{word}', expected lower-case letters and digits.")


@dataclass(frozen=True)
class Acceptance:
    """Thresholds of ``gantry check`` for the policy; a task may be stricter."""

    max_lin_vel_error_m_s: float = 0.15
    """Mean planar velocity error."""
    max_yaw_rate_error_rad_s: float = 0.2
    """Mean yaw-rate error."""
    max_fall_rate: float = 0.02
    """Share of episodes that end in a fall."""
    min_success_rate: float | None = None
    """Share of episodes that reach their goal; None for policies without goals."""
    max_perturbed_fall_rate: float | None = None
    """Share of falls under the worst perturbation; None where perturbations are reported only."""
    max_perturbed_lin_vel_error_m_s: float | None = None
    """Mean planar velocity error under the worst perturbation; likewise."""
    min_perturbed_success_rate: float | None = None
    """Share of episodes that reach their goal under the worst perturbation; likewise."""


@dataclass(frozen=True)
class TrainedRange:
    """Range of one parameter of robot or ground over which the policy was trained."""

    name: str
    """Name in :data:`gantry_hardware.model.dynamics.PARAMETERS`, or of the ground, the load or the disturbances, such
    as ``friction``, ``added_mass_kg`` and ``push_m_s``."""
    lower: float
    """Least value, in the unit at the end of the name."""
    upper: float
    """Largest value."""
    joint: str = ""
    """Name of the joint; empty for all joints, and for ground, load and disturbances."""


@dataclass(frozen=True)
class Provenance:
    """Origin of the policy."""

    task: str = ""
    """Registered task name."""
    preset: str = ""
    """``cpu`` or ``gpu``."""
    seed: int = 0
    """Seed of the training."""
    env_steps: int = 0
    """Control steps seen in training, all environments together."""
    train_wall_s: float = 0.0
    """Wall-clock time of the training."""
    git_commit: str = ""
    """Commit of the training code; ends in ``-dirty`` if the tree was changed."""
    created_utc: str = ""
    """ISO 8601 time of the export."""
