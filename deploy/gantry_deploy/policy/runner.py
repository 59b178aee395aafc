"""One tick of a policy on the robot: state and command in, joint targets out, through the code that trained it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.commands import shape_command
from gantry_deploy.actions.decoder import JointTargets, action_of
from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM, PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import InstructionError, PolicyError, SurroundingsError
from gantry_deploy.language.instructions import tokens_of
from gantry_deploy.observations.builder import ObservationBuilder, Signals
from gantry_deploy.observations.surroundings import Surroundings, surroundings_row
from gantry_deploy.policy.onnx_policy import Images
from gantry_deploy.policy.policy import Policy, open_policy
from gantry_hardware.backends.state import JointCommand, RobotState
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.sensing.frames import yaw_of

FloatArray = NDArray[np.float32]

SENT_TOLERANCE = 1e-5
"""Largest difference between wanted and sent targets that is rounding, rad, m, rad/s or m/s."""
WRAP_PERIODS = 1024
"""The policy's time wraps after so many gait periods: single precision would lose the phase after hours."""


@dataclass(frozen=True)
class PolicyStep:
    """Inputs and outputs of one tick of the policy."""

    observation: FloatArray
    """Shape (obs,), the network's input."""
    action: FloatArray
    """Shape (n,), the network's output before the clip."""
    command: FloatArray
    """Shape (c,), what the policy was asked after shaping."""
    target: JointCommand
    """Joint targets with the contract's gains, before the robot's own limits."""
    observe_s: float
    """Time that building the observation took."""
    infer_s: float
    """Time that the network and the decoding of its action took."""
    base_action: FloatArray | None = None
    """Shape (n,), of a residual policy what its base would have done."""
    policy_action: FloatArray | None = None
    """Shape (n,), the network's output before the clip, where another action was executed; None where it was that."""
    instruction: str = ""
    """Instruction that was followed; empty for a policy that takes none."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Further facts for a recording, by name, of the source that asked the policy."""


@dataclass(frozen=True)
class PolicyOutput:
    """Observation and answer of the network in one tick, before anything is sent."""

    observation: FloatArray
    """Shape (obs,), the network's input."""
    images: Images | None
    """Picture (3, height, width) uint8 of each camera, the network's other input; None without cameras."""
    action: FloatArray
    """Shape (n,), the network's output before the clip, dimensionless."""
    base_action: FloatArray | None
    """Shape (n,), of a residual policy the action of its base; None without one."""
    signals: Signals
    """Signals that the observation was made of; one row."""


Decide = Callable[[PolicyOutput], FloatArray]
"""From the network's answer to the action (n,) that is executed, dimensionless, in the policy's own frame."""


class PolicyRunner:
    """Runs a bundle's policy on a robot's states.

    Args:
        bundle: A verified bundle.
        spec: The robot; refused if the policy was not trained for it.
        policy: Acts in place of the bundle's network, for weights that change while the policy runs.

    Raises:
        ContractError: If contract and robot do not fit.
        PolicyError: If the network and the contract do not fit.
    """

    def __init__(self, bundle: Bundle, spec: RobotSpec, policy: Policy | None = None) -> None:
        contract = bundle.contract
        contract.check_robot(spec)
        self.contract = contract
        self.spec = spec
        self.embodiment = embodiment_of(contract)
        """What differs between kinds of robots."""
        self.mapper_model = bundle.mapper_bytes
        """The bundle's mapping network, ONNX; None without one."""
        like = np.zeros((1, 1), dtype=np.float32)
        self._policy = open_policy(bundle) if policy is None else policy
        self._builder = ObservationBuilder(contract, like)
        self._decoder = self.embodiment.make_decoder(contract, like, spec)
        self._stiffness = _constant(contract.stiffness_nm_rad)
        self._damping = _constant(contract.damping_nm_s_rad)
        self._zeros = _constant((0.0,) * len(contract.joint_names))
        self.instruction = ""
        """Instruction that the policy follows; empty before the first, and for a policy that takes none."""
        self._tokens: FloatArray | None = None
        self._followed = ""
        self._told: tuple[FloatArray, str] | None = None
        self._wrap_s = WRAP_PERIODS / contract.gait.frequency_hz if contract.gait is not None else float("inf")
        self.reset()
        self._rehearse()

    def reset(self) -> None:
        """Start over: time zero, no history, no last action, nothing planned, command at rest.

        Targets that continue, as an arm's do, begin where the joints are in the next step.
        """
        self._builder.reset()
        self._policy.reset()
        self._ticks = 0
        self._last_action = np.zeros((1, self.contract.action_size), dtype=np.float32)
        self._last_target: JointCommand | None = None
        self._last_signals: Signals | None = None
        self._command = np.zeros((1, len(self.contract.command.names)), dtype=np.float32)

    def replan(self) -> None:
        """Forget what was planned, and nothing else: another action than the policy's was executed."""
        self._policy.reset()

    def instruct(self, text: str) -> None:
        """Tell the policy what to do from its next step on; what it had planned is forgotten. Any thread.

        Raises:
            InstructionError: If the policy takes no instructions, or knows no word of this one.
        """
        spec = self.contract.instruction
        if spec is None:
            raise InstructionError(f"The policy takes no instructions; '{text[:40]}' is not heard.")
        self._told, self.instruction = (tokens_of(spec, text)[None], text), text

    def follow(self, joint_target_rad: NDArray[np.floating]) -> None:
        """Take these joint targets (n,), rad and of a gripper m, for the last ones, where a recording is repeated.

        Where targets continue, a policy may well answer a difference in them with a larger one: what rounds otherwise
        here than where it was recorded must not grow over a whole episode.
        """
        self._decoder.reset(_row(joint_target_rad))

    @property
    def continues(self) -> bool:
        """Whether targets continue from the last ones, so that another action makes no jump."""
        return self._decoder.targets is not None

    @property
    def time_s(self) -> float:
        """Time since the reset, in ticks of the contract's rate; wraps after 1024 gait periods."""
        return self._ticks / self.contract.rate_hz % self._wrap_s

    def _rehearse(self) -> None:
        """The embodiment's first steps before the robot moves: nonsense in network or contract shows, and first calls
        allocate."""
        contract, window, kind = self.contract, self.contract.map_window, self.embodiment
        if contract.instruction is not None:
            self._tokens = np.zeros((1, MAX_WORDS), dtype=np.float32)
        flat = None if window is None else np.zeros((window.rows, window.cols, len(window.channels)))
        seen = (flat, blank_images(contract), kind.rest_surroundings(contract))
        try:
            for command in kind.rehearsal(contract):
                if not self.step(kind.rest_state(contract), command, *seen).target.is_finite():
                    raise PolicyError("The contract holds numbers that are not finite: first steps give no targets.")
        except (IndexError, TypeError, ValueError) as error:
            raise PolicyError(f"The contract contradicts itself, first steps fail: {error}.") from error
        self._tokens = None
        self.reset()

    def step(
        self,
        state: RobotState,
        requested_command: NDArray[np.floating],
        elevation_map: NDArray[np.floating] | None = None,
        images: Images | None = None,
        surroundings: Surroundings | None = None,
        decide: Decide | None = None,
    ) -> PolicyStep:
        """One tick, ``contract.dt_s`` after the last one.

        Args:
            state: The newest reading.
            requested_command: Shape (c,), what the operator asks for; a goal as
                :func:`gantry_deploy.actions.commands.goal_command` makes it from the newest reading.
            elevation_map: Shape (rows, cols, channels), the contract's map window around the robot, for a policy that
                looks at one.
            images: Picture (3, height, width) of each camera that the contract names.
            surroundings: What a car sees beside its own state, arrays of one row.
            decide: Chooses the action that is executed, where a person corrects the policy; the network's own if None.

        Raises:
            PolicyError: If the command has another size, an image is missing, or the action is not finite.
            ContractError: If the policy needs a map, a velocity or an object's pose that is not there.
            SurroundingsError: If what a car sees is not finite, or its own place is not known.
        """
        start = time.perf_counter()
        self._command = self._shaped(requested_command)
        signals = self._signals(state, elevation_map, surroundings)
        observation = self._builder(signals)
        observed = time.perf_counter()
        action, base = self._policy(observation, images)
        own = action
        if decide is not None:
            answer = PolicyOutput(observation[0], images, action[0], _first(base), signals)
            action = np.asarray(decide(answer), dtype=np.float32).reshape(action.shape)
        self._last_action = self._decoder.clip(action)
        target = self._command_of(self._decoder(action, signals))
        self._last_target, self._last_signals = target, signals
        self._ticks += 1
        done = time.perf_counter()
        return PolicyStep(
            observation[0],
            action[0],
            self._command[0],
            target,
            observed - start,
            done - observed,
            _first(base),
            None if np.array_equal(action, own) else own[0],
            self._followed,
        )

    def _shaped(self, requested_command: NDArray[np.floating]) -> FloatArray:
        """Command (1, c) of this step, in the units of the contract's command."""
        requested, names = np.asarray(requested_command, dtype=np.float32), self.contract.command.names
        if requested.shape != (len(names),):
            raise PolicyError(f"The command has shape {requested.shape}, expected ({len(names)},): {', '.join(names)}.")
        return shape_command(self.contract.command, requested[None], self._command, self.contract.dt_s)

    def _signals(
        self, state: RobotState, elevation_map: NDArray[np.floating] | None, surroundings: Surroundings | None
    ) -> Signals:
        """Signals of this step, with what only the runner knows."""
        self._hear()
        signals = signals_of(state, self._command, self._last_action, self.time_s, elevation_map, surroundings)
        if self._ticks == 0:
            self._decoder.reset(signals.joint_pos_rad)
        signals.joint_target_rad, signals.start_joint_pos_rad = self._decoder.targets, self._start_of(signals)
        if self._tokens is not None:
            signals.extra = {**signals.extra, INSTRUCTION_TERM: self._tokens}
        return signals

    def _hear(self) -> None:
        """Take a new instruction, if another thread has given one; a plan for the last one is dropped."""
        told, self._told = self._told, None
        if told is not None:
            self._tokens, self._followed = told
            self._policy.reset()

    def _start_of(self, signals: Signals) -> FloatArray | None:
        """Joints (1, n), rad, at the first tick."""
        return signals.joint_pos_rad if self._last_signals is None else self._last_signals.start_joint_pos_rad

    def executed_action(self, sent: JointCommand) -> FloatArray:
        """Action (n,), dimensionless, that leads to what was really sent in the last step, after the clip.

        Where robot, slew limit or hand-over changed the targets, the decoder goes on from those that were sent, and the
        action is the one that gives them; of a decoder that cannot tell it, the action of the step. Efforts are not
        compared: drivers of arms add gravity compensation.
        """
        wanted = self._last_target
        if wanted is None or self._last_signals is None:
            raise PolicyError("No step of the policy has been made yet whose command could have been sent.")
        differs = np.abs(sent.pos_rad - wanted.pos_rad).max() > SENT_TOLERANCE
        if differs or np.abs(sent.vel_rad_s - wanted.vel_rad_s).max() > SENT_TOLERANCE:
            found = action_of(self._decoder, _row(sent.pos_rad), _row(sent.vel_rad_s), self._last_signals)
            if found is not None:
                self._last_action = self._decoder.clip(found)
            self._decoder.reset(_row(sent.pos_rad))
        return self._last_action[0]

    def _command_of(self, targets: JointTargets) -> JointCommand:
        """Joint command of one row of targets, with the contract's gains."""
        speed = self._zeros if targets.vel_rad_s is None else targets.vel_rad_s[0].astype(np.float64)
        effort = self._zeros if targets.effort_nm is None else targets.effort_nm[0].astype(np.float64)
        place = targets.pos_rad[0].astype(np.float64)
        return JointCommand(place, speed, effort, self._stiffness, self._damping)


def blank_images(contract: PolicyContract) -> Images | None:
    """A black picture of each of the contract's cameras; None without any."""
    images = {item.name: np.zeros((3, item.height, item.width), np.uint8) for item in contract.cameras}
    return images or None


def signals_of(
    state: RobotState,
    command: FloatArray,
    last_action: FloatArray,
    time_s: float,
    elevation_map: NDArray[np.floating] | None = None,
    surroundings: Surroundings | None = None,
) -> Signals:
    """Signals of a robot's state for a policy, one row in single precision.

    Args:
        state: A reading.
        command: Shape (1, c), after shaping.
        last_action: Shape (1, n), after the clip.
        time_s: Since the policy started.
        elevation_map: Shape (rows, cols, channels), where there is one.
        surroundings: Of a car, arrays of one row.

    Raises:
        SurroundingsError: If there are surroundings that are not finite, or the car's place is not known.
    """
    velocity, place = state.lin_vel_base_in_base_m_s, state.object_pose_in_base
    pose = None
    if surroundings is not None:
        if state.pose_in_world is None:
            raise SurroundingsError("The car does not know where it is: its odometry tells no finite place.")
        pos, quat = state.pose_in_world
        # From here on the car is the origin.
        pose = _row(np.array([0.0, 0.0, yaw_of(quat[None])[0]]))
        surroundings = surroundings_row(surroundings, pos[:2])
    return Signals(
        joint_pos_rad=_row(state.joint_pos_rad),
        joint_vel_rad_s=_row(state.joint_vel_rad_s),
        quat_base_to_world_wxyz=_row(state.quat_base_to_world_wxyz),
        ang_vel_base_in_base_rad_s=_row(state.ang_vel_base_in_base_rad_s),
        command=command,
        last_action=last_action,
        time_s=np.array([time_s], dtype=np.float32),
        lin_vel_base_in_base_m_s=None if velocity is None else _row(velocity),
        elevation_map=None if elevation_map is None else elevation_map.astype(np.float32)[None],
        object_pose_in_base=None if place is None else _row(place),
        pose_in_world=pose,
        surroundings=surroundings,
        extra={name: _row(values) for name, values in state.extra.items()},
    )


def _first(rows: FloatArray | None) -> FloatArray | None:
    """First row (n,) of rows (1, n) of any unit."""
    return None if rows is None else rows[0]


def _row(values: NDArray[np.floating]) -> FloatArray:
    return values.astype(np.float32)[None]


def _constant(values: tuple[float, ...]) -> NDArray[np.float64]:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array
