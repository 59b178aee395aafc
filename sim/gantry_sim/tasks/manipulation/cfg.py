"""Everything about a manipulation task that differs between tasks, policies and experiments."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from gantry_deploy.contract.parts import TrainedRange
from gantry_deploy.contract.trained_range import ranges_of_joints
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.bounds import ordered
from gantry_hardware.files.structured import ConfigError
from gantry_hardware.model.dynamics import RobotDynamics
from gantry_hardware.model.spec import RobotSpec
from gantry_sim.tasks.manipulation.language.instructions import VERBS, Phrasing
from gantry_sim.tasks.manipulation.workbench import ALL_CAMERAS, CAMERAS, WORKBENCHES

ACTIONS = ("ee", "ee-turn", "joint", "joint-absolute")
"""Spaces of actions: the end effector with its orientation kept, the end effector with rotation, the joints by
steps, the joints to places. A gripper comes last in each."""
REWARDS = ("sparse", "dense", "progress")
FRAMES = ("base", "start")
"""Frames of observed places: the arm's base, or the hand's place at the start of the episode along the base's axes, as
in HIL-SERL, so that a policy does not learn where the table is. Places of objects are then those from the hand."""
OBSERVERS = ("state", "camera")
"""Inputs of the policy: the object's place, or what its cameras show."""


POSITIVE = ("mass", "friction", "stiffness", "damping", "armature_share", "strength_share")
"""Ranges of :class:`RandomizeCfg` that are greater than zero."""


@dataclass(frozen=True)
class RandomizeCfg:
    """Differences between episodes; pairs are ranges."""

    object_x_m: tuple[float, float] = (0.24, 0.40)
    """Range of the object's place, ahead of the base."""
    object_y_m: tuple[float, float] = (-0.14, 0.14)
    """The same to the left."""
    object_yaw_rad: float = 0.35
    """Half width of the object's heading; the gripper keeps its own."""
    goal_x_m: tuple[float, float] = (0.26, 0.40)
    """Range of the place where the object belongs, in tasks with a goal."""
    goal_y_m: tuple[float, float] = (-0.14, 0.14)
    """The same to the left."""
    start_m: float = 0.03
    """Half width of the end effector's start along each axis."""
    held_shift_m: float = 0.003
    """Half width of where an object that begins in the hand is held, along the fingers and across."""
    held_tilt_rad: float = 0.03
    """Half width of its tilt in the hand."""
    mass: tuple[float, float] = (0.6, 1.6)
    """Factor on the object's mass."""
    friction: tuple[float, float] = (0.7, 1.2)
    """Sliding friction of the pads and, times 0.6, of table and object."""
    stiffness: tuple[float, float] = (0.9, 1.1)
    """Factor on the position gains of all joints."""
    damping: tuple[float, float] = (0.85, 1.15)
    """Factor on their velocity gains."""
    viscous_friction_nm_s_rad: tuple[float, float] | None = None
    """Friction of every joint that grows with its speed, N m s/rad; None for that of the model."""
    coulomb_friction_nm: tuple[float, float] | None = None
    """Dry friction of every joint, N m; None for that of the model."""
    armature_share: tuple[float, float] = (1.0, 1.0)
    """Rotor inertia of all joints over that of the model."""
    strength_share: tuple[float, float] = (1.0, 1.0)
    """Torque of all motors over the usual one, its limit included."""
    encoder_offset_rad: tuple[float, float] = (0.0, 0.0)
    """Reading of each joint's encoder minus the true angle; the gripper's has none."""
    late_share: float = 0.0
    """Share of episodes in which the motors obey a whole control step late."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, tuple):
                least = 0.0 if item.name.endswith("friction_nm") or item.name.endswith("nm_s_rad") else None
                above = 0.0 if item.name in POSITIVE else None
                ordered(f"env.randomize.{item.name}", value, least, above, ConfigError)

    def wide(self) -> RandomizeCfg:
        """The same places, on arms that differ in gains, friction and delay, with objects that differ more."""
        return replace(
            self,
            mass=(0.5, 2.2),
            friction=(0.4, 1.2),
            stiffness=(0.8, 1.15),
            damping=(0.8, 1.2),
            viscous_friction_nm_s_rad=(0.0, 0.5),
            coulomb_friction_nm=(0.0, 0.3),
            late_share=0.4,
        )

    def trained_for(self, dt_s: float, spec: RobotSpec) -> tuple[TrainedRange, ...]:
        """The table of a contract.

        Args:
            dt_s: Control step.
            spec: The arm.
        """
        ranges = {
            "stiffness_share": self.stiffness,
            "damping_share": self.damping,
            "viscous_friction_nm_s_rad": self.viscous_friction_nm_s_rad,
            "coulomb_friction_nm": self.coulomb_friction_nm,
            "encoder_offset_rad": self.encoder_offset_rad if any(self.encoder_offset_rad) else None,
            "command_delay_s": (0.0, dt_s) if self.late_share > 0.0 else (0.0, 0.0),
            "friction": self.friction,
            "object_mass_share": self.mass,
        }
        told = [TrainedRange(name, *pair) for name, pair in ranges.items() if pair is not None]
        for name, share in (("armature_kg_m2", self.armature_share), ("effort_limit_nm", self.strength_share)):
            told += ranges_of_joints(name, spec.array(name), share, spec) if share != (1.0, 1.0) else []
        return tuple(told)

    def around(self, dynamics: RobotDynamics, spec: RobotSpec) -> RandomizeCfg:
        """These ranges with those of an identified machine in their places, see :meth:`RobotDynamics.range_of`.

        Args:
            dynamics: Of the machine.
            spec: The arm, of which shares are taken.
        """
        names = {
            "stiffness": "stiffness_share",
            "damping": "damping_share",
            "viscous_friction_nm_s_rad": "viscous_friction_nm_s_rad",
            "coulomb_friction_nm": "coulomb_friction_nm",
            "encoder_offset_rad": "encoder_offset_rad",
        }
        changes: dict[str, Any] = {
            mine: dynamics.training_range(name, spec, getattr(self, mine)) for mine, name in names.items()
        }
        for mine, name in (("armature_share", "armature_kg_m2"), ("strength_share", "effort_limit_nm")):
            changes[mine] = dynamics.training_range(name, spec, getattr(self, mine), name)
        late = dynamics.value("command_delay_s") > 0.0 and self.late_share == 0.0
        changes["late_share"] = 0.5 if late else None
        return replace(self, **{mine: value for mine, value in changes.items() if value is not None})


@dataclass(frozen=True)
class ArmCfg:
    """A manipulation task."""

    task: str
    """A name of :data:`gantry_sim.tasks.manipulation.workbench.WORKBENCHES`."""
    num_envs: int = 16
    """Environments side by side."""
    robot: str = "yam"
    """Robot name."""
    action: str = "ee"
    """Space of actions, a name of :data:`ACTIONS`."""
    observer: str = "state"
    """Inputs of the policy, a name of :data:`OBSERVERS`."""
    frame: str = "base"
    """Frame of observed places, a name of :data:`FRAMES`."""
    motion: bool = True
    """The policy sees how fast the joints move and how far their targets lead. A clone that sees it may go on with what
    is under way in place of looking where to go (copycat problem, arXiv 2010.14876)."""
    cameras: tuple[str, ...] = ()
    """Images beside the state: ``wrist``, ``front``, ``side``; with the observer ``camera``, the first two if none is
    named."""
    image_px: int = 84
    """Rows and columns of an image."""
    critic: bool = False
    """Show a learner's critic, as the key ``critic``, where the object and its goal are (in tasks told in words, those
    that are named), and beside pictures the numbers of the scene."""
    meshes: bool = False
    """Images show the arm as it looks; otherwise simple shapes stand for it, which are drawn four times as fast."""
    rate_hz: float = 20.0
    """Control rate."""
    physics_dt_s: float = 0.005
    """Physics step; twice as long, and a grasped cube slips."""
    episode_s: float = 5.0
    """Length of an episode."""
    reward: str = "sparse"
    """``sparse``: 1 in a step that succeeds, otherwise 0. ``dense``: that, and the progress made in
    every step, which is 1 in all.
    ``progress``: 1 for a success, and for a failure the more, the nearer its way came to those of the policy's own
    successes (:mod:`gantry_sim.envs.progress_env`)."""
    end_on_success: bool = True
    """Success ends the episode; otherwise it runs on, for success at its end."""
    step_m: float = 0.02
    """Largest step of the end effector's target per action."""
    step_rad: float = 0.1
    """Largest turn of it, or of a joint's target, per action."""
    max_turn_rad: float = 0.6
    """Farthest that an end effector which turns leaves its orientation."""
    max_lead_m: float = 0.04
    """Farthest that the target runs ahead of the end effector."""
    object_noise_m: float = 0.0
    """Half width of the noise on the object's observed place, drawn every step."""
    verbs: tuple[str, ...] = VERBS
    """Requests of the instructions, names of :data:`gantry_sim.tasks.manipulation.language.instructions.VERBS`; of no
    effect in tasks that are told nothing in words."""
    phrasing: str = Phrasing.TRAINED.value
    """Set of the instructions' sentences: ``trained``, or ``held-out`` for paraphrases that no training reads."""
    randomize: RandomizeCfg = field(default_factory=RandomizeCfg)
    """Differences between episodes; where several things lie, their places follow the scene and not its ranges."""

    def __post_init__(self) -> None:
        if not self.verbs:
            raise ConfigError(f"env.verbs is empty, expected some of: {', '.join(VERBS)}.")
        for kind, value, known in (
            ("manipulation task", self.task, WORKBENCHES),
            ("action", self.action, ACTIONS),
            ("observer", self.observer, OBSERVERS),
            ("frame", self.frame, FRAMES),
            ("reward", self.reward, REWARDS),
            ("phrasing", self.phrasing, [one.value for one in Phrasing]),
            *(("camera", name, ALL_CAMERAS) for name in self.cameras),
            *(("verb", name, VERBS) for name in self.verbs),
        ):
            if value not in known:
                raise UnknownNameError(kind, value, known)
        for name in ("num_envs", "image_px", "rate_hz", "physics_dt_s", "episode_s", "step_m", "step_rad"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"env.{name} is {getattr(self, name)}, expected more than 0.")
        steps = 1.0 / (self.rate_hz * self.physics_dt_s)
        if abs(steps - round(steps)) > 1e-6 or steps < 1:
            raise ConfigError(
                f"env.rate_hz {self.rate_hz} and env.physics_dt_s {self.physics_dt_s} give {steps:g} physics steps per "
                "control step, expected a whole number."
            )

    @property
    def seen_cameras(self) -> tuple[str, ...]:
        """Cameras whose images are observed."""
        return self.cameras or (CAMERAS if self.observer == "camera" else ())

    @property
    def decimation(self) -> int:
        """Physics steps per control step."""
        return round(1.0 / (self.rate_hz * self.physics_dt_s))
