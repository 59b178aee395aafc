"""``gantry bench runtime``: what one policy step costs, and how evenly the loop ticks, in process and on ROS 2."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from gantry_deploy.benchmarks.ros import measure_ros_loop
from gantry_deploy.benchmarks.step import FIXED, example_of, measure_step, tell
from gantry_deploy.bundle.bundle import Bundle, load_bundle, write_bundle
from gantry_deploy.bundle.locate import WHERE, find_bundle
from gantry_deploy.cli.command import UsageError, add_json_option, parse_numbers
from gantry_deploy.contract.policy_contract import METADATA_KEY, PolicyContract
from gantry_deploy.control.loop import Controller, TickReport
from gantry_deploy.control.safety import Event, Mode, SafetyConfig, SafetyMachine
from gantry_deploy.control.timing import TimingLog
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.embodiments.simulated_task import task_judge
from gantry_deploy.errors import SafetyError
from gantry_deploy.perception.maps import make_map_source, needs_map
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.process.realtime import realtime_thread
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec

STEP_AIM_S = 0.5e-3
"""A step of a policy with a small network (judge, observe, infer) should take less than this at p99 ..."""
MAP_STEP_AIM_S = 2e-3
"""... and of one that looks at a map, less than this."""
JITTER_AIM_S = 2e-3
"""On ROS 2 the loop's period should be this close to its nominal value at p99 ..."""
JITTER_RATE_HZ = 50.0
"""... at this rate."""
ITERATIONS = 20_000
"""Policy steps that are timed, after a tenth as many that are not."""
NOISY = 1.25
"""A machine on which that is more is said to be one that shows in the numbers."""
SETTLE_S = 5.0
"""Longest time that a loop has to get under the policy; a first picture may take a second."""
BUILT_IN_ROBOT = "go2"
"""Robot of the bundle that is made up when none is given."""
BUILT_IN_LAYERS = (256, 128, 64)
"""Its hidden layers."""

MOCK = "mock"
"""Backend without physics, timed beside the robot's simulator."""
# In the air nothing falls over, so that any policy at any rate can be timed.
OPTIONS: dict[str, dict[str, Any]] = {"mujoco": {"fixed_base": True, "visuals": False}}
"""Options of backends, beside those that the policy needs."""
SEEING = ("mujoco",)
"""Those that have a camera on request, for policies that look at a map."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "bundle",
        metavar="BUNDLE",
        nargs="?",
        help=f"{WHERE}; without it a random network of {'-'.join(map(str, BUILT_IN_LAYERS))}",
    )
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="length of each loop")
    parser.add_argument("--rates", type=parse_numbers, default="50,200", metavar="HZ,HZ", help="rates of the loops, Hz")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, metavar="N", help="policy steps to time")
    parser.add_argument(
        "--realtime-priority", type=int, default=0, metavar="N", help="SCHED_FIFO priority of the loops, 1 to 99"
    )
    parser.add_argument("--no-ros", action="store_true", help="leave the ROS 2 loops out")
    add_json_option(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line asks for."""
    if not args.seconds > 0 or not args.iterations > 0 or min(args.rates) <= 0:
        raise UsageError("--seconds, --iterations and --rates take numbers above 0.")
    with tempfile.TemporaryDirectory(prefix="gantry-bench-") as folder:
        bundle = load_bundle(find_bundle(args.bundle)) if args.bundle else built_in_bundle(Path(folder) / "built-in")
        spec = robot_spec(bundle.contract.robot)
        machine = describe_machine()
        print(f"{machine['processor']}, {machine['cores']} cores, load {machine['load_1min']:.2f}")
        if machine["load_1min"] > 0.5 * machine["cores"]:
            print("note: this machine is busy with other work, which shows in every number below")
        compute = measure_step(PolicyRunner(bundle, spec), spec, args.iterations)
        _print_compute(compute, bundle.contract)
        print(f"\nloops of {args.seconds:g} s in real time; period in ms, jitter is the p99 of |period - nominal|")
        print(f"{'':26}{'p50':>9}{'p99':>9}{'max':>9}{'jitter':>9}{'missed':>8}  mode at the end")
        priority = args.realtime_priority
        timers = [_bare_timer(rate_hz, args.seconds, priority) for rate_hz in args.rates]
        loops = [
            _in_process(bundle, spec, name, rate_hz, args.seconds, priority)
            for name in (MOCK, embodiment_of(bundle.contract).simulated_backend)
            for rate_hz in args.rates
        ]
        ros: list[dict[str, Any]] = []
        if args.no_ros:
            print("ROS 2: left out on request")
        else:
            ros = [_on_ros(bundle, rate_hz, args.seconds, Path(folder), priority) for rate_hz in args.rates]
    result = {
        "bundle": args.bundle or "built in",
        "machine": machine,
        "compute": compute,
        "realtime_priority": priority,
        "timers": timers,
        "loops": loops,
        "ros": ros,
    }
    result["aims"] = aims_of(result, MAP_STEP_AIM_S if needs_map(bundle.contract) else STEP_AIM_S)
    for name, aim in result["aims"].items():
        print(f"{name}: {aim['value']:.3f} ms; on a machine that does nothing else the aim is {aim['aim']:g} ms")
    return result


def built_in_bundle(folder: Path) -> Bundle:
    """A bundle around a random network, for machines without a trained one.

    Raises:
        GantryError: If the package that writes networks is not installed.
    """
    from gantry_deploy.testing.legs import contract_for, tiny_bundle  # Not needed where a bundle is given.

    try:
        return tiny_bundle(folder, contract_for(robot_spec(BUILT_IN_ROBOT)), hidden=BUILT_IN_LAYERS)
    except ModuleNotFoundError as error:
        raise GantryError(f"Without a BUNDLE a network is made up, which needs '{error.name}'.") from error


def bundle_at_rate(bundle: Bundle, rate_hz: float, folder: Path) -> Path:
    """Copy of a bundle with another rate in its contract; for timing only, since it was not trained at that rate.

    Raises:
        GantryError: If the package that writes networks is not installed.
    """
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise GantryError(f"a bundle of another rate than {bundle.contract.rate_hz:g} Hz needs 'onnx'") from error
    contract = replace(bundle.contract, rate_hz=rate_hz)
    model = onnx.load_from_string(bundle.model_bytes)
    for entry in model.metadata_props:
        if entry.key == METADATA_KEY:
            entry.value = contract.to_json()
    return write_bundle(
        folder,
        contract=contract,
        model_bytes=model.SerializeToString(),
        golden=bundle.golden,
        base_bytes=bundle.base_bytes,
        mapper_bytes=bundle.mapper_bytes,
    )


def describe_machine() -> dict[str, Any]:
    """Facts about the machine that the numbers depend on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_1min": load,
        "system": platform.platform(),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
    }


def measure_loop(bundle: Bundle, spec: RobotSpec, backend: str, rate_hz: float, seconds: float) -> dict[str, Any]:
    """Run the control loop on a simulated robot in real time, under the policy.

    Returns:
        The loop's statistics; ``timing`` is of the time under the policy alone.
    """
    kind = embodiment_of(bundle.contract)
    options = {**OPTIONS.get(backend, {}), **kind.backend_options(bundle.contract, backend)}
    if backend in SEEING and needs_map(bundle.contract):
        options["camera"] = True
    robot = make_backend(backend, spec, realtime=True, **options)
    with contextlib.closing(robot):
        runner = PolicyRunner(bundle, spec)
        eyes = make_map_source(bundle.contract, robot, runner.mapper_model)
        around = kind.surroundings_source(bundle.contract, robot)
        # Hanging in the air there is nothing to stand up for.
        safety = SafetyMachine(spec, SafetyConfig(stand_duration_s=0.1))
        controller = Controller(robot, runner, safety, map_source=eyes, surroundings=around)
        tell(runner)
        # The network does not care how often it is asked, and this is about the loop.
        controller.rate_hz = rate_hz
        robot.connect()
        judge, refusals = task_judge(robot), [""]
        goal = None if judge is None else judge.command()
        if goal is not None:
            controller.set_command(goal, robot.now_s())
        controller.run(on_tick=lambda report: _into_policy(controller, report, refusals), duration_s=SETTLE_S)
        if controller.safety.mode in (Mode.PASSIVE, Mode.STAND):
            raise GantryError(
                f"the policy did not start within {SETTLE_S:g} s: {refusals[-1] or 'no reason was given'}"
            )
        controller.timing.clear()
        missed = controller.counts()["missed_deadlines"]
        still = None if goal is not None else np.zeros(len(bundle.contract.command.names))
        controller.run(duration_s=seconds, command_input=None if still is None else lambda _: still)
        statistics = controller.statistics()
    statistics["missed_deadlines"] -= missed
    return {"backend": backend, "rate_hz": rate_hz, "seconds": seconds, **statistics}


def measure_timer(rate_hz: float, seconds: float) -> dict[str, Any]:
    """Wake up at a rate and do nothing: no loop on this machine can be more even than that.

    Returns:
        ``period`` and ``jitter`` (the period's distance from its nominal value), as the loops report them.
    """
    timing = TimingLog(("period", "jitter"))
    dt_s = 1.0 / rate_hz
    start_s = previous_s = time.monotonic()
    for tick in range(1, max(2, round(seconds * rate_hz)) + 1):
        time.sleep(max(0.0, start_s + tick * dt_s - time.monotonic()))
        now_s = time.monotonic()
        timing.add("period", now_s - previous_s)
        timing.add("jitter", abs(now_s - previous_s - dt_s))
        previous_s = now_s
    return timing.summary()


def _into_policy(controller: Controller, report: TickReport, refusals: list[str]) -> None:
    wanted = {Mode.PASSIVE: Event.STAND, Mode.STAND: Event.START}.get(report.mode)
    if wanted is not None:
        try:
            controller.request(wanted)
        except SafetyError as error:  # Not yet; the next tick asks again.
            refusals.append(str(error))
    elif report.mode in (Mode.POLICY, Mode.DAMP):
        controller.stop()


def _bare_timer(rate_hz: float, seconds: float, priority: int) -> dict[str, Any]:
    name = f"bare timer, {rate_hz:g} Hz"
    with _announced(name), realtime_thread(priority):
        timing = measure_timer(rate_hz, seconds)
    _print_row(name, timing)
    return {"rate_hz": rate_hz, "seconds": seconds, "timing": timing}


def _in_process(
    bundle: Bundle, spec: RobotSpec, backend: str, rate_hz: float, seconds: float, priority: int
) -> dict[str, Any]:
    name = f"{backend}, {rate_hz:g} Hz"
    try:
        with _announced(name), realtime_thread(priority):
            loop = measure_loop(bundle, spec, backend, rate_hz, seconds)
    except GantryError as error:
        return _skipped(name, {"backend": backend, "rate_hz": rate_hz}, error)
    _print_loop(name, loop)
    return loop


def _on_ros(bundle: Bundle, rate_hz: float, seconds: float, folder: Path, priority: int) -> dict[str, Any]:
    kind = embodiment_of(bundle.contract)
    backend = kind.simulated_backend
    name = f"ROS 2 ({backend}), {rate_hz:g} Hz"
    try:
        if needs_map(bundle.contract):
            raise GantryError("the policy needs mapping_node beside its nodes; `gantry demo` starts all of them")
        with _announced(name):
            path = bundle.path
            if rate_hz != bundle.contract.rate_hz:
                path = bundle_at_rate(bundle, rate_hz, folder / f"{rate_hz:g}-hz")
            arguments = _launch_arguments(bundle.contract, backend)
            loop = measure_ros_loop(path, rate_hz, seconds, kind.launch, arguments, folder, priority)
    except GantryError as error:
        return _skipped(name, {"rate_hz": rate_hz}, error)
    _print_loop(name, loop)
    return loop


def _launch_arguments(contract: PolicyContract, backend: str) -> dict[str, str]:
    options = OPTIONS.get(backend)
    arguments = {} if options is None else {"backend": backend, "options": json.dumps(options)}
    text = example_of(contract)
    return {**arguments, "instruction": text} if text else arguments


def aims_of(result: dict[str, Any], step_aim_s: float = STEP_AIM_S) -> dict[str, dict[str, Any]]:
    """The measured numbers against what they should be, in ms; aims whose numbers are missing are left out."""
    rows = [("policy step p99", result["compute"]["step"]["p99_s"], step_aim_s)]
    rows += [
        (f"ROS 2 jitter p99 at {loop['rate_hz']:g} Hz", loop["timing"]["jitter"]["p99_s"], JITTER_AIM_S)
        for loop in result["ros"]
        if "timing" in loop and loop["rate_hz"] == JITTER_RATE_HZ
    ]
    return {name: {"value": 1e3 * value, "aim": 1e3 * aim} for name, value, aim in rows}


def _skipped(name: str, entry: dict[str, Any], error: GantryError) -> dict[str, Any]:
    print(f"{name:<26}skipped: {error}")
    return {**entry, "skipped": str(error)}


@contextlib.contextmanager
def _announced(name: str) -> Iterator[None]:
    """Say what is being waited for, where someone watches; the result takes the line's place."""
    watched = sys.stdout.isatty()
    if watched:
        print(f"{name:<26}...", end="\r", flush=True)
    try:
        yield
    finally:
        if watched:
            print(" " * 40, end="\r", flush=True)


def _print_loop(name: str, loop: dict[str, Any]) -> None:
    fault = f": {loop['fault']['text']}" if loop["fault"] else ""
    _print_row(name, loop["timing"], f"{loop['missed_deadlines']:8d}  {loop['mode']}{fault}")


def _print_row(name: str, timing: dict[str, dict[str, float]], rest: str = "") -> None:
    period, jitter = timing["period"], timing["jitter"]
    numbers = "".join(
        f"{1e3 * row:9.3f}" for row in (period["p50_s"], period["p99_s"], period["max_s"], jitter["p99_s"])
    )
    print(f"{name:<26}{numbers}{rest}", flush=True)


def _print_compute(compute: dict[str, dict[str, float]], contract: PolicyContract) -> None:
    count = int(compute["step"]["count"])
    print(f"\none policy step, {contract.observation_size} -> {contract.action_size} numbers, {count} times; us")
    print(f"{'':26}{'mean':>9}{'p50':>9}{'p99':>9}{'max':>9}")
    for name, row in compute.items():
        print(f"{name:<26}" + "".join(f"{1e6 * row[key]:9.1f}" for key in ("mean_s", "p50_s", "p99_s", "max_s")))
    spread = compute[FIXED]["p99_s"] / compute[FIXED]["p50_s"]
    if spread > NOISY:
        print(f"note: what is always the same took {spread:.1f} times its median at p99, by this machine's doing")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
