"""``gantry run``: a bundle on a robot, simulated or real, chosen by name."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.bundle.locate import near_miss
from gantry_deploy.cli.bundles import add_bundle_arguments, open_bundle
from gantry_deploy.cli.command import (
    UsageError,
    add_json_option,
    choose,
    emit_result,
    output_file,
    parse_key_value,
    parse_numbers,
)
from gantry_deploy.cli.machine import add_dynamics_argument, dynamics_option, warn_beyond_training
from gantry_deploy.contract.policy_contract import BODY_POSE, OBJECT_GOAL, PolicyContract
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import SafetyMachine
from gantry_deploy.control.safety_config import safety_config
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.depth.attached import add_depth_argument, require_pose, with_depth
from gantry_deploy.embodiments.registry import embodiment_of, simulated_backends
from gantry_deploy.flash.status import StatusPublisher
from gantry_deploy.language.instructions import tokens_of, unknown_words
from gantry_deploy.perception.images import watch_scene
from gantry_deploy.perception.maps import MapSource, make_map_source, map_values, needs_map
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.process.interrupts import interrupt_on_terminate
from gantry_hardware.backends.backend import Robot
from gantry_hardware.backends.registry import backend_names, make_backend, moves_metal
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.capabilities import HasTask, capability
from gantry_hardware.robots import robot_spec
from gantry_mapping.config import MappingCfg, load_mapping_cfg

if TYPE_CHECKING:
    from gantry_deploy.recording.recorder import Recorder

MIN_DURATION_S, MAX_DURATION_S = 0.001, 30 * 86400.0
"""Shortest and longest time under the policy that may be asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_bundle_arguments(parser, leapp=True)
    parser.add_argument(
        "--backend",
        help=f"robot to run on: {', '.join(backend_names())}; if not given {simulated_backends()}",
    )
    parser.add_argument("--duration", type=float, default=20.0, metavar="S", help="seconds under the policy")
    parser.add_argument(
        "--command", type=parse_numbers, metavar="X,Y,YAW", help="what to ask of the policy; zero if not given"
    )
    parser.add_argument(
        "--goal", type=parse_numbers, metavar="X,Y,YAW", help="place and heading in the world, m and rad, to walk to"
    )
    parser.add_argument(
        "--instruction",
        metavar="TEXT",
        help="what to do, in words, for a policy that follows instructions; a simulated task has its own if not given",
    )
    parser.add_argument(
        "--mapping", metavar="FILE", help="how to map, for a policy that looks at a map; see configs/mapping/go2.yaml"
    )
    add_depth_argument(parser)
    add_dynamics_argument(parser, "simulate that machine where the backend can")
    parser.add_argument(
        "--real-time", action="store_true", help="let a simulated robot follow the clock instead of running ahead"
    )
    parser.add_argument(
        "--yes", action="store_true", help="confirm that a real robot may move; needed unless the backend is simulated"
    )
    parser.add_argument(
        "--record", type=output_file(".mcap"), metavar="FILE", help="write everything that happens to an MCAP file"
    )
    parser.add_argument(
        "--status-file",
        type=output_file(),
        metavar="FILE",
        help="keep a file up to date that says mode and fault, by which others see whether a policy runs",
    )
    parser.add_argument(
        "--option",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the backend, for example delay_s=0.01; may be given several times",
    )
    parser.add_argument(
        "--safety",
        type=parse_key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the safety machine, for example max_tilt_rad=0.8; may be given several times",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the command line asks for."""
    _check(args)
    bundle = open_bundle(args)
    contract = bundle.contract
    warnings = warn_beyond_training(args.dynamics, contract)
    embodiment = embodiment_of(contract)
    args.backend = args.backend or embodiment.simulated_backend
    command = command_array(contract, args.command)
    goal = _goal(contract, args)
    _check_instruction(args, contract)
    config = safety_config(dict(args.safety))
    spec = robot_spec(contract.robot)
    options = _options(args, contract)
    runner = PolicyRunner(bundle, spec)
    backend = choose("robot backend", args.backend, backend_names())
    embodiment.check_backend(contract, backend)
    if not args.yes and moves_metal(backend):
        raise _asks_for_yes(backend, embodiment.start_words, args.duration)
    mapping = _mapping(args, contract)
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupt_on_terminate())
        robot = with_depth(make_backend(backend, spec, **options), args.depth)
        stack.callback(robot.close)
        eyes = make_map_source(contract, robot, runner.mapper_model, mapping)
        watch_scene(contract, robot)
        around = embodiment.surroundings_source(contract, robot)
        task = capability(robot, HasTask)
        if goal is None:
            command = _place_of_task(contract, task, args.command, command)
        _print_start(args, robot, contract, command, goal)
        recorder = None if args.record is None else _recorder(args.record, robot, contract, eyes, stack)
        robot.connect()
        require_pose(robot, args.depth)
        controller = Controller(
            robot, runner, SafetyMachine(spec, config), recorder, map_source=eyes, surroundings=around
        )
        controller.set_goal(goal)
        _instruct(controller, task, args.instruction)
        if contract.command.kind == OBJECT_GOAL:  # It is needed before the policy starts.
            controller.set_command(command, robot.now_s())
        told = _status_told(args, controller, stack)
        session = WalkSession(
            controller, command if goal is None else None, args.duration, say=print, done=_done(task), on_tick=told
        )
        session.run()
    result = _result(args, bundle, controller, session)
    result["recording"] = None if recorder is None else recorder.statistics()
    lost = None if recorder is None else recorder.failure
    result["map"] = map_values(eyes)
    result["beyond_training"] = warnings
    result["instruction"] = runner.instruction
    result["goal"] = None if goal is None else {**vars(goal), "distance_m": session.goal_distance_m(goal)}
    result["road"] = getattr(robot, "outcome", None)
    if task is not None:
        result |= {"task_done": session.done_after_s is not None, "task_done_after_s": session.done_after_s}
    _print_summary(result)
    emit_result(args, result)
    return 0 if session.completed and lost is None else 1


def _check(args: argparse.Namespace) -> None:
    """Refuse what can be refused before anything is loaded."""
    if args.backend is not None:
        choose("robot backend", args.backend, backend_names())
    finite("--duration", args.duration, MIN_DURATION_S, MAX_DURATION_S, UsageError)


def _asks_for_yes(backend: str, moves: str, duration_s: float) -> UsageError:
    return UsageError(
        f"Backend '{backend}' may move a real robot: it would {moves} {duration_s:g} s by itself. "
        "Give --yes if it has room and an operator is at the emergency stop."
    )


def _recorder(
    path: Path, robot: Robot, contract: PolicyContract, eyes: MapSource | None, stack: contextlib.ExitStack
) -> Recorder:
    """Recorder into an MCAP file, which is closed with the stack."""
    from gantry_deploy.recording.recorder import Recorder  # Only a recording needs the MCAP packages.

    # A clock that waits for the loop can wait for the disk as well, and then nothing is lost.
    patient = not getattr(robot, "realtime", True)
    recorder = Recorder(path, contract, robot.spec, lossless=patient, map_source=eyes)
    stack.callback(recorder.close)
    return recorder


def _status_told(
    args: argparse.Namespace, controller: Controller, stack: contextlib.ExitStack
) -> Callable[[TickReport], None] | None:
    """Listener to every tick that keeps ``--status-file`` up to date; None without the option."""
    if args.status_file is None:
        return None
    publisher = StatusPublisher(args.status_file, str(args.bundle))
    stack.callback(publisher.close)
    return lambda report: publisher.note(report, controller.counts())


def _headline(args: argparse.Namespace, contract: PolicyContract, robot: Robot) -> str:
    """Robot, backend, the place at which it is looked for if that can be chosen, rate and duration."""
    place = getattr(robot, "link_text", "")
    on = f"'{args.backend}', {place}," if place else f"'{args.backend}'"
    return f"{contract.robot} on {on} at {contract.rate_hz:g} Hz, {args.duration:g} s under the policy."


def _print_start(
    args: argparse.Namespace, robot: Robot, contract: PolicyContract, command: NDArray[np.float64], goal: Goal | None
) -> None:
    """Say what is going to happen; ``command`` (c,) is in the contract's units."""
    print(_headline(args, contract, robot))
    if goal is None:
        print_command(contract, command)
    else:
        print(f"goal: x {goal.x_in_world_m:g} m, y {goal.y_in_world_m:g} m, yaw {goal.yaw_in_world_rad:g} rad")


def _done(task: HasTask | None) -> Callable[[], bool] | None:
    return None if task is None else (lambda: task.task_done)


def _options(args: argparse.Namespace, contract: PolicyContract) -> dict[str, Any]:
    """Options of the backend: what the policy needs, and what was given."""
    given = dict(args.option)
    options = {**embodiment_of(contract).backend_options(contract, args.backend), **given}
    options |= dynamics_option(args.dynamics, choose("robot backend", args.backend, backend_names()), given)
    return options | ({"realtime": True} if args.real_time else {})


def _mapping(args: argparse.Namespace, contract: PolicyContract) -> MappingCfg | None:
    """The setup of ``--mapping``; what only a policy with a map can use is refused for others."""
    if args.mapping is not None and not Path(args.mapping).is_file():
        raise UsageError(f"--mapping: there is no file {args.mapping}.{near_miss(args.mapping)}")
    for option in ("mapping", "depth"):
        if getattr(args, option) and not needs_map(contract):
            raise UsageError(f"--{option}: this policy looks at no map; leave the option out.")
    if args.mapping is None:
        return None
    return load_mapping_cfg(args.mapping)


def _goal(contract: PolicyContract, args: argparse.Namespace) -> Goal | None:
    if args.goal is None:
        return None
    if contract.command.kind != BODY_POSE:
        raise UsageError(f"--goal: the policy follows '{contract.command.kind}', not '{BODY_POSE}'; give --command.")
    if len(args.goal) != 3 or args.command is not None:
        raise UsageError("--goal needs three numbers, x, y and yaw, and does not go with --command.")
    return Goal(*args.goal)


def _check_instruction(args: argparse.Namespace, contract: PolicyContract) -> None:
    """Refuse an instruction that the policy cannot follow, and warn of words that it was not trained on."""
    text, spec = args.instruction, contract.instruction
    if text is None:
        return
    if spec is None:
        raise UsageError("--instruction: this policy takes no instructions; leave the option out.")
    tokens_of(spec, text)
    if unknown := unknown_words(spec, text):
        print(f"note: the policy was not trained on {', '.join(unknown)}.")


def _instruct(controller: Controller, task: HasTask | None, given: str | None) -> None:
    """Tell a policy that follows instructions what was given, or what a connected simulated task asks for."""
    spec = controller.runner.contract.instruction if controller.runner is not None else None
    if spec is None:
        return
    text = given or ("" if task is None else task.instruction)
    if not text:
        examples = ", ".join(f"'{example}'" for example in spec.examples[:3])
        raise UsageError(f"--instruction is missing: what to do, in words, for example {examples}.")
    controller.instruct(text)
    print(f"instruction: {text}")
    if task is not None and text != task.instruction and not task.ask(text):
        print(f"note: whether it is done is judged by the scene's own instruction, '{task.instruction}'.")


def _place_of_task(
    contract: PolicyContract, task: HasTask | None, given: tuple[float, ...] | None, command: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The command, or where a simulated task wants its object if none was given."""
    if contract.command.kind != OBJECT_GOAL or given is not None:
        return command
    place = None if task is None else task.goal_in_base_m
    if place is None:
        raise UsageError(f"--command is missing: where the object belongs, {', '.join(contract.command.names)}.")
    return place


def command_array(contract: PolicyContract, numbers: tuple[float, ...] | None) -> NDArray[np.float64]:
    """The command of ``--command``, shape (c,), in the contract's units, zero if not given.

    Raises:
        UsageError: If it has another size than the contract's command.
    """
    names = contract.command.names
    if numbers is None:
        return np.zeros(len(names))
    if len(numbers) != len(names):
        given = ",".join(f"{number:g}" for number in numbers)
        if not names:
            raise UsageError(f"--command {given}: this policy takes no command; leave the option out.")
        raise UsageError(f"--command {given} has {len(numbers)} numbers, expected {len(names)}: {', '.join(names)}.")
    return np.array(numbers)


def print_command(contract: PolicyContract, command: NDArray[np.float64]) -> None:
    """Print the command (c,) in the contract's units, and where that is beyond what the policy was trained for."""
    spec = contract.command
    if not spec.names:
        return
    print("command: " + ", ".join(f"{name} {value:g}" for name, value in zip(spec.names, command, strict=True)))
    for name, value, lower, upper in zip(spec.names, command, spec.lower, spec.upper, strict=True):
        if not lower <= value <= upper:
            print(
                f"note: {name} {value:g} is outside the trained range [{lower:g}, {upper:g}] and will be limited to it."
            )


def _result(args: argparse.Namespace, bundle: Bundle, controller: Controller, session: WalkSession) -> dict[str, Any]:
    return {
        "bundle": str(bundle.path),
        "robot": controller.robot.spec.name,
        "backend": args.backend,
        "options": dict(args.option),
        "depth": list(args.depth),
        "real_time": getattr(controller.robot, "realtime", True),
        "command": session.command,
        "duration_s": args.duration,
        "completed": session.completed,
        "modes": session.modes,
        "tracking": session.tracking(),
        "statistics": controller.statistics(),
    }


def _print_summary(result: dict[str, Any]) -> None:
    statistics = result["statistics"]
    print(
        f"{statistics['ticks']} ticks, {statistics['missed_deadlines']} missed deadlines, "
        f"{statistics['read_errors']} failed reads, {statistics['write_errors']} failed writes"
    )
    print(f"{'[ms]':>10} {'p50':>9} {'p99':>9} {'max':>9}")
    # A clock that waits for the loop tells nothing of how evenly it ticks.
    hidden = () if result["real_time"] else ("period", "jitter")
    for name, row in statistics["timing"].items():
        if name in hidden:
            continue
        print(f"{name:>10} {1e3 * row['p50_s']:9.3f} {1e3 * row['p99_s']:9.3f} {1e3 * row['max_s']:9.3f}")
    tracking = result["tracking"]
    if tracking is not None:
        print(
            f"mean planar velocity error {tracking['lin_vel_error_m_s']:.3f} m/s, "
            f"mean yaw-rate error {tracking['yaw_rate_error_rad_s']:.3f} rad/s"
        )
    if "task_done" in result:
        after_s = result["task_done_after_s"]
        print("the task was not done" if after_s is None else f"the task was done after {after_s:.1f} s")
    if result["goal"] is not None:
        distance = result["goal"]["distance_m"]
        print("the goal's distance is unknown" if distance is None else f"{distance:.2f} m from the goal at the end")
    if result["map"]:
        print("map: " + ", ".join(f"{name} {value}" for name, value in result["map"].items()))
    if (road := result["road"]) is not None:
        ended = f"{road['ended']} after {road['ended_s']:.1f} s" if road["ended"] else "the episode was not over"
        print(f"{100.0 * road['completion']:.1f} % of the route, {ended}, events: {road['events'] or 'none'}")
    recording = result["recording"]
    if recording is not None:
        print(f"recorded {recording['written']} ticks to {recording['path']}, {recording['dropped']} dropped")
    ended = "completed" if result["completed"] else "NOT completed"
    failure = None if recording is None else recording["failure"]
    print(ended if failure is None else f"{ended}, but the recording is NOT complete: {failure}")
