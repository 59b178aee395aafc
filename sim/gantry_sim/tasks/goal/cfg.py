"""Everything about a goal-reaching task that differs between robots and presets."""

from __future__ import annotations

from dataclasses import dataclass, field

from gantry_deploy.contract.policy_contract import Acceptance, GoalVelocitySpec
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.structured import ConfigError
from gantry_mapping.elevation.grid import WINDOW_FULL, GridSpec
from gantry_sim.tasks.goal.mapping import StudentMapCfg
from gantry_sim.tasks.goal.robots import GoalRobotCfg, clocked, goal_robot_cfg, stepping
from gantry_sim.tasks.locomotion.terms import SensorNoiseCfg
from gantry_sim.terrains.catalogue import TESTS, training_kinds

RATE_HZ = 50.0
"""Control rate of every goal policy."""
OBSERVERS = ("teacher", "student")
"""Inputs of an actor: the true map and its own velocity, or a map with uncertainty and a history without velocity."""
GAITS = ("strides", "steps", "trot", "clock")
"""Gait priors. ``strides`` adds strides towards the goal over the ground of the map to the policy's joint targets,
``trot`` those of the walking task, which know nothing of the ground, and ``clock`` nothing: the policy sees the phase.
``steps`` is the legs of a policy that says where to step (:mod:`gantry_deploy.footsteps.controller`)."""

PAPER_WEIGHTS: dict[str, float] = {
    "position_tracking": 100.0,
    "heading_tracking": 50.0,
    "move_to_goal": 5.0,
    "stand_at_goal": 5.0,
    "early_termination": -10.0 * RATE_HZ,
    "spinning": -1.0,
    "leaping": -1.0,
    "body_contact": -1.0,
    "new_body_contact": -1.0,
    "stumbling": -1.0,
    "slipping": -1.0,
    "self_collision": -1.0,
    "base_roll_rate": -0.1,
    "joint_regularisation": -1e-3,
    "action_smoothness": -1e-2,
    "contact_force": -1e-5,
    "link_acceleration": -1e-3,
    "joint_pos_limit": -1000.0,
    "joint_vel_limit": -1.0,
    "joint_torque_limit": -1.0,
}
"""Table I of the paper, per second; each undesired event has a term of its own."""
OFFERED_WEIGHTS: dict[str, float] = {"approach": 0.0}
"""Not the paper's; as an alternative."""
RECIPE_WEIGHTS: dict[str, float] = {
    "track_planar_velocity": 2.0,
    "track_yaw_rate": 1.0,
    "contact_matches_clock": 0.5,
    "swing_height": 0.5,
    "joint_deviation": -0.1,
    "tilt": -0.5,
}
"""Additional weights of the few-sample recipe: the velocity that the goal amounts to, and the gait's clock."""


@dataclass(frozen=True)
class GroundCfg:
    """Terrain, and starts of robots on it."""

    kinds: tuple[str, ...] = ()
    """Training terrains or groups of them; empty for all."""
    levels: int = 10
    """Levels of difficulty."""
    columns: int = 60
    """Columns, shared out to the kinds."""
    tile_m: tuple[float, float] = (12.0, 12.0)
    """Length and width of a tile."""
    start_levels: int = 6
    """Robots start on this many of the lowest levels."""
    trained_levels: int | None = None
    """A curriculum keeps to this many of the lowest levels; None for all. Evaluations know no such bound."""
    school: tuple[str, ...] = ()
    """Kinds or groups of terrain on which every robot of a curriculum begins, to be sent to its own column when it
    does well and back when it fails there on the lowest level; empty for none."""
    even: bool = False
    """Robots are spread over all kinds alike; otherwise in the paper's shares, half of them on stones and climbs up."""
    held_out: tuple[str, ...] = ()
    """Held-out terrains to walk on instead; for evaluation alone."""

    def __post_init__(self) -> None:
        training_kinds(self.kinds or None)  # says what is unknown or held out
        training_kinds(self.school or None)
        for name in self.held_out:
            if name not in TESTS:
                raise UnknownNameError("test terrain", name, TESTS)
        for name in ("levels", "columns", "start_levels", "trained_levels"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"env.ground.{name} is {getattr(self, name)}, expected at least 1.")


@dataclass(frozen=True)
class EndsCfg:
    """Conditions for an early end of an episode (paper, Sec. on terminations); 0 leaves a condition out."""

    base_force: float = 1.0
    """Contact force on the base, as a share of the robot's weight."""
    thigh_acc_m_s2: float | None = None
    """Vertical acceleration of a thigh whose foot is on the ground, from its positions at control steps; None for the
    paper's number, which is of another simulator: docs/ame2.md says what walking costs here."""
    stagnation_s: float = 5.0
    """A robot must have moved within so much time..."""
    stagnation_m: float = 0.5
    """...by so much, unless it is within a metre of its goal."""
    grace_s: float = 1.0
    """Forces and accelerations do not count for so long after a reset; the attitude does after 0.2 s."""


@dataclass(frozen=True)
class GoalNoiseCfg:
    """Noise of sensors, beside that of the walking tasks."""

    body: SensorNoiseCfg = field(default_factory=SensorNoiseCfg)
    """Encoders, gyroscope, attitude."""
    lin_vel_m_s: float = 0.1
    """Half width of the noise on the base's velocity."""
    map_z_m: float = 0.05
    """Half width of the noise on each cell of the map, at the end of its ramp."""
    map_drift_m: float = 0.03
    """Half width of the map's displacement along x, y, z, drawn once per episode."""
    outlier_share: float = 0.01
    """Share of a student's cells with a random height and a large variance."""
    clean_share: float = 0.1
    """Share of students that are given a complete, certain map."""


@dataclass(frozen=True)
class RandomizeCfg:
    """Differences between environments and episodes."""

    friction: tuple[float, float] = (0.3, 1.0)
    """Sliding friction of the feet."""
    added_mass_kg: tuple[float, float] = (-1.5, 1.5)
    """Mass added to the base: a tenth of the robot's, as 5 kg are of the paper's quadruped."""
    com_offset_m: float = 0.02
    """Half width of the shift of the base's centre of mass along x and y."""
    start_m: float = 0.2
    """Half width of the start's place."""
    start_vel_m_s: float = 0.5
    """Half width of the base's velocity at the start."""
    start_joint_rad: float = 0.1
    """Half width of the joints' distance from the default pose at the start."""
    start_yaw_share: float = 1.0
    """Robots look at the goal at first; over the ramp, away from it by up to this share of half a turn."""
    goal_heading_rad: float = 1.047
    """The heading asked for lies within this of the tile's direction."""
    goal_cone_rad: tuple[float, float] = (0.175, 0.785)
    """Goals lie in a cone ahead whose half angle grows over the ramp."""
    ramp_steps: int = 48_000
    """Control steps of the training over which these and the map's noise grow; 0 for no ramp."""

    def __post_init__(self) -> None:
        for name in ("friction", "added_mass_kg", "goal_cone_rad"):
            low, high = getattr(self, name)
            if not low <= high:
                raise ConfigError(f"env.randomize.{name} is [{low}, {high}], expected the smaller number first.")


@dataclass(frozen=True)
class GoalCfg:
    """A goal-reaching task. The defaults are the paper's, for the robot's size."""

    robot: str
    """Robot name."""
    num_envs: int
    """Environments side by side."""
    physics_dt_s: float = 0.005
    """Physics step; 50 Hz divided by it must be whole."""
    full_collisions: bool = True
    """Collide every shape, with each other as well; otherwise feet, shanks and base with the ground alone."""
    pyramidal: bool = False
    """Pyramidal friction cone, cheaper than the elliptic one."""
    observer: str = "teacher"
    """Inputs of the actor, a name of :data:`OBSERVERS`."""
    window: GridSpec = WINDOW_FULL
    """The patch of ground that actor and critic see."""
    history: int = 20
    """Frames of a student's proprioception."""
    student_map: StudentMapCfg = field(default_factory=StudentMapCfg)
    """Source of a student's map."""
    goal_velocity: GoalVelocitySpec | None = None
    """Gait prior: a clock that is driven towards the goal; None for the paper's task."""
    gait: str = "strides"
    """Gait prior, a name of :data:`GAITS`; of no effect without one."""
    scaled: bool = False
    """Scale angular and joint velocities in the observation, as the few-sample recipe does."""
    episode_s: float = 16.0
    """Length of an episode; one goal each."""
    bootstrap: bool = False
    """Treat the end of time as a truncation and not as the end. The critic knows the time that is left, so that an
    episode's value is finite without (trap 6 of the paper's code, which bootstraps)."""
    curriculum: bool = True
    """Robots that arrive move to harder ground; otherwise they are spread over all levels, ramps at their end."""
    promote_new: float = 0.2
    """Weight of the newest episode in a robot's running success; above a half, a success, it moves up."""
    ground: GroundCfg = field(default_factory=GroundCfg)
    """Terrain."""
    ends: EndsCfg = field(default_factory=EndsCfg)
    """Early ends."""
    noise: GoalNoiseCfg | None = field(default_factory=GoalNoiseCfg)
    """Sensor noise of the actor; None for none."""
    randomize: RandomizeCfg = field(default_factory=RandomizeCfg)
    """Differences between environments."""
    reward_weights: dict[str, float] = field(default_factory=dict)
    """Changes to the weights of :func:`weights_of`."""
    acceptance: Acceptance = field(default_factory=lambda: Acceptance(min_success_rate=0.8))
    """Thresholds that a policy must reach."""

    def __post_init__(self) -> None:
        goal_robot_cfg(self.robot)
        if self.observer not in OBSERVERS:
            raise UnknownNameError("observer", self.observer, OBSERVERS)
        if self.gait not in GAITS:
            raise UnknownNameError("gait", self.gait, GAITS)
        if self.gait == "steps" and self.robot != "go2":
            raise ConfigError(f"env.gait is 'steps', for the legs of 'go2'; env.robot is '{self.robot}'.")
        if self.window.center_y_m != 0.0:
            raise ConfigError(f"env.window.center_y_m is {self.window.center_y_m}, expected 0: the task is symmetric.")
        mapper = self.student_map.mapper
        fits = f"{mapper}-".startswith(f"mapper-{self.robot}-")
        if maps_in_loop(self) and mapper.startswith("mapper-") and not fits:
            raise ConfigError(
                f"env.student_map.mapper is '{mapper}', made for another height and camera; expected "
                f"'mapper-{self.robot}', the path of a mapper.onnx, or '' for none."
            )
        known = weights_of(self, changes=False)
        for name in self.reward_weights:
            if name not in known:
                raise UnknownNameError("reward term", name, known)
        if self.curriculum and self.ground.held_out:
            raise ConfigError(
                f"env.ground.held_out is {list(self.ground.held_out)} in a training: test terrains are for evaluation."
            )


def goal_robot_of(cfg: GoalCfg) -> GoalRobotCfg:
    """The robot of a task, with the recipe's gait where there is a gait."""
    robot = goal_robot_cfg(cfg.robot, recipe=cfg.goal_velocity is not None and cfg.gait in ("strides", "steps"))
    if cfg.goal_velocity is not None and cfg.gait == "clock":
        return clocked(robot)
    return stepping(robot) if steps_in(cfg) else robot


def steps_in(cfg: GoalCfg) -> bool:
    """Whether the policy says where to step instead of where joints are to be."""
    return cfg.goal_velocity is not None and cfg.gait == "steps"


def maps_in_loop(cfg: GoalCfg) -> bool:
    """Whether the actor's map is made by the mapping pipeline."""
    return cfg.observer == "student" and cfg.student_map.source == "pipeline"


def weights_of(cfg: GoalCfg, *, changes: bool = True) -> dict[str, float]:
    """Weight per second of every reward term of a task.

    Args:
        cfg: The task.
        changes: With those of ``cfg.reward_weights``.
    """
    weights = PAPER_WEIGHTS | OFFERED_WEIGHTS | goal_robot_of(cfg).extra_weights
    if cfg.goal_velocity is not None and not steps_in(
        cfg
    ):  # legs that step by themselves need no reward for their clock
        weights = weights | RECIPE_WEIGHTS
    return weights | cfg.reward_weights if changes else weights
