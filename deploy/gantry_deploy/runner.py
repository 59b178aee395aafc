"""One tick of a policy on the robot: state and command in, joint targets out, through the code that trained it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions import ActionDecoder
from gantry_deploy.bundle import Bundle
from gantry_deploy.commands import shape_command
from gantry_deploy.errors import PolicyError
from gantry_deploy.observations import ObservationBuilder, Signals
from gantry_deploy.onnx_policy import OnnxPolicy
from gantry_hardware.spec import RobotSpec
from gantry_hardware.state import JointCommand, RobotState

FloatArray = NDArray[np.float32]

_WRAP_PERIODS = 1024
"""The policy's time wraps after so many gait periods: single precision would lose the phase after hours."""


@dataclass(frozen=True)
class PolicyStep:
    """What one tick of the policy saw and did."""

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


class PolicyRunner:
    """Runs a bundle's policy on a robot's states.

    Args:
        bundle: A verified bundle.
        spec: The robot; refused if the policy was not trained for it.

    Raises:
        ContractError: If contract and robot do not fit.
        PolicyError: If the network and the contract do not fit.
    """

    def __init__(self, bundle: Bundle, spec: RobotSpec) -> None:
        contract = bundle.contract
        contract.check_robot(spec)
        if contract.action.kind != "target/joint/position":
            raise PolicyError(f"The policy's output is '{contract.action.kind}', expected 'target/joint/position'.")
        self.contract = contract
        self.spec = spec
        self.mapper_model = bundle.mapper_bytes
        """The bundle's mapping network, ONNX; None without one."""
        like = np.zeros((1, 1), dtype=np.float32)
        self._policy = OnnxPolicy(bundle.model_bytes, contract)
        self._builder = ObservationBuilder(contract, like)
        self._decoder = ActionDecoder(contract, like)
        self._stiffness = _constant(contract.stiffness_nm_rad)
        self._damping = _constant(contract.damping_nm_s_rad)
        self._zeros = _constant((0.0,) * contract.action_size)
        self._wrap_s = _WRAP_PERIODS / contract.gait.frequency_hz if contract.gait is not None else float("inf")
        self.reset()
        self._rehearse()

    def reset(self) -> None:
        """Start over: time zero, no history, no last action, command at rest."""
        self._builder.reset()
        self._ticks = 0
        self._last_action = np.zeros((1, self.contract.action_size), dtype=np.float32)
        self._command = np.zeros((1, len(self.contract.command.names)), dtype=np.float32)

    @property
    def time_s(self) -> float:
        """Time since the reset, in ticks of the contract's rate; wraps after 1024 gait periods."""
        return self._ticks / self.contract.rate_hz % self._wrap_s

    def _rehearse(self) -> None:
        """One tick at rest before the robot moves: nonsense in network or contract shows, and first calls allocate."""
        n = self.spec.num_joints
        rest = RobotState(
            stamp_s=0.0,
            joint_pos_rad=np.array(self.contract.default_pos_rad),
            joint_vel_rad_s=np.zeros(n),
            joint_effort_nm=np.zeros(n),
            quat_base_to_world_wxyz=np.array([1.0, 0.0, 0.0, 0.0]),
            ang_vel_base_in_base_rad_s=np.zeros(3),
            lin_acc_base_in_base_m_s2=np.array([0.0, 0.0, 9.81]),
            lin_vel_base_in_base_m_s=np.zeros(3),
        )
        window = self.contract.map_window
        flat = None if window is None else np.zeros((window.rows, window.cols, len(window.channels)))
        try:
            target = self.step(rest, np.zeros(len(self.contract.command.names)), flat).target
        except (IndexError, ValueError) as error:
            raise PolicyError(f"The contract contradicts itself, a first step at rest fails: {error}.") from error
        if not target.is_finite():
            raise PolicyError("The contract holds numbers that are not finite: a first step at rest gives no targets.")
        self.reset()

    def step(
        self,
        state: RobotState,
        requested_command: NDArray[np.floating],
        elevation_map: NDArray[np.floating] | None = None,
    ) -> PolicyStep:
        """One tick, ``contract.dt_s`` after the last one.

        Args:
            state: The newest reading.
            requested_command: Shape (c,), what the operator asks for; a goal as
                :func:`gantry_deploy.commands.goal_command` makes it from the newest reading.
            elevation_map: Shape (rows, cols, channels), the contract's map window around the robot, for a policy that
                looks at one.

        Raises:
            PolicyError: If the command has another size, or the action is not finite.
            ContractError: If the policy needs a map or a velocity that is not there.
        """
        start = time.perf_counter()
        requested = np.asarray(requested_command, dtype=np.float32)
        if requested.shape != (len(self.contract.command.names),):
            raise PolicyError(
                f"The command has shape {requested.shape}, expected ({len(self.contract.command.names)},): "
                f"{', '.join(self.contract.command.names)}."
            )
        self._command = shape_command(self.contract.command, requested[None], self._command, self.contract.dt_s)
        signals = signals_of(state, self._command, self._last_action, self.time_s, elevation_map)
        observation = self._builder(signals)
        observed = time.perf_counter()
        action = self._policy(observation)
        target = self._decoder(
            action,
            signals.time_s,
            self._command,
            signals.quat_base_to_world_wxyz,
            signals.ang_vel_base_in_base_rad_s,
            signals.elevation_map,
        )
        self._last_action = self._decoder.clip(action)
        self._ticks += 1
        command = JointCommand(target[0].astype(np.float64), self._zeros, self._zeros, self._stiffness, self._damping)
        done = time.perf_counter()
        return PolicyStep(observation[0], action[0], self._command[0], command, observed - start, done - observed)


def signals_of(
    state: RobotState,
    command: FloatArray,
    last_action: FloatArray,
    time_s: float,
    elevation_map: NDArray[np.floating] | None = None,
) -> Signals:
    """What a policy sees of a robot's state, one row in single precision.

    Args:
        state: A reading.
        command: Shape (1, c), after shaping.
        last_action: Shape (1, n), after the clip.
        time_s: Since the policy started.
        elevation_map: Shape (rows, cols, channels), where there is one.
    """
    velocity = state.lin_vel_base_in_base_m_s
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
    )


def _row(values: NDArray[np.floating]) -> FloatArray:
    return values.astype(np.float32)[None]


def _constant(values: tuple[float, ...]) -> NDArray[np.float64]:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array
