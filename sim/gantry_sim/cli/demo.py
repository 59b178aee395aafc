"""``gantry demo``: from nothing to a policy that moves a robot over ROS 2, and one report about all of it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_deploy.bundle.locate import WHERE_SOURCE, bundle_in, find_bundle, find_source
from gantry_deploy.cli import command as cli
from gantry_deploy.cli.command import Command, UsageError
from gantry_hardware.files.bounds import finite
from gantry_hardware.model.dynamics import load_dynamics
from gantry_hardware.robots import robot_spec
from gantry_sim.cli.common import ProgressBar, add_set_option, changed, clock, steps, whole
from gantry_sim.cli.way_back import cost_text
from gantry_sim.tasks.catalogue import described
from gantry_sim.tasks.names import family_of, require_task

if TYPE_CHECKING:
    from gantry_deploy.contract.policy_contract import PolicyContract
    from gantry_sim.demo.scenario import DemoConfig, Outcome, Scenario

TASK, ARM_TASK = "velocity-flat-go2", "yam-lift"
"""Default tasks."""
PRETRAINED, TOLD = "pretrained:go2-walk", "pretrained:yam-tell"
"""Policies of ``--pretrained`` and ``--language``."""
TOLD_TRIALS = 4
"""Recorded episodes of ``--language``."""
SECONDS, EPISODES, GATE_EPISODES = 20.0, 200, {True: 6, False: 20}
"""Length of a recorded walk, held-out episodes, and those of the gate by whether a finished policy is shown."""
LEGS, GOALS, ARM = "policies that follow velocities", "policies that walk to goals by a map", "arms"
"""Kinds of demos."""
DEMOS = {"legs": LEGS, "arm": ARM}
"""Embodiment -> kind of its demo; policies of legs that walk to goals have one of their own."""
TAKEN_BY = {
    "changes": (LEGS,),
    "pretrained": (LEGS,),
    "check_episodes": (LEGS,),
    "dynamics": (LEGS,),
    "episodes": (LEGS, ARM),
    "seconds": (LEGS, GOALS),
    **dict.fromkeys(("terrain", "difficulty", "goal"), (GOALS,)),
    **dict.fromkeys(("demos", "suboptimality", "clone_updates", "steps", "trials", "instruction"), (ARM,)),
}
"""Options that not every kind takes, by their place in the command line's namespace."""
LEARNING = ("changes", "demos", "suboptimality", "clone_updates", "steps")
"""Those of them that are about learning."""
HINTS = {
    LEGS: " Ask for an arm with --arm, and for goals with the --bundle of such a policy.",
    GOALS: " Its episodes are counted by `gantry eval --suite ame2` and `gantry check`.",
}
"""Advice where an option is of another kind."""
CORRECTING = ("demos", "suboptimality", "episodes")
"""Options that demos of corrections take as well."""
LEAST = {"seconds": 2.0, "episodes": 0, "check_episodes": 1, "demos": 2, "trials": 1}
"""Smallest values of options."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    policy = parser.add_mutually_exclusive_group()
    policy.add_argument("--task", metavar="TASK", help=f"what to train, see `gantry tasks` (default: {TASK})")
    policy.add_argument("--pretrained", action="store_true", help="train nothing, show the policy that comes along")
    policy.add_argument("--bundle", metavar="PATH", help=f"train nothing, show this: {WHERE_SOURCE}")
    add = parser.add_argument
    add_set_option(parser)
    add("--output", type=Path, metavar="FOLDER", help="where to write, new or empty (default: runs/demo-<time>)")
    add("--seed", type=cli.seed_number, default=1, help="of the training and of the gate")
    seconds = f"length of a recorded walk, its velocity error being judged from 12 s on (default: {SECONDS:g})"
    add("--seconds", type=float, metavar="S", help=seconds)
    add("--no-ros", action="store_true", help="run in this process, without ROS 2")
    add("--no-video", action="store_true", help="leave out the film")
    add("--episodes", type=int, metavar="N", help=f"held-out episodes; 0 for none (default: {EPISODES})")
    check = f"episodes of the gate; {GATE_EPISODES[False]}, or {GATE_EPISODES[True]} if nothing is trained"
    add("--check-episodes", type=int, metavar="N", help=check)
    machine = "dynamics of one machine: walk it in simulation, and warn where the policy was not trained for them"
    add("--dynamics", metavar="FILE", help=f"{machine}; {LEGS}")
    add = parser.add_argument_group("with --bundle, policies that walk to goals by a map").add_argument
    terrain = "where to walk: t1 to t4, which no policy was trained on, a training terrain, or flat (default: t1 to t4)"
    add("--terrain", action="append", default=[], metavar="T1,T2", help=terrain)
    add("--difficulty", type=float, metavar="D", help="of the terrain, 0 to 1 (default: 0.5)")
    goal = "from the start, in m and rad (default: the terrain's goal most ahead)"
    add("--goal", type=cli.parse_numbers, metavar="X,Y,YAW", help=goal)
    add = parser.add_argument_group("with --arm, the task of an arm, or a bundle of one").add_argument
    add("--arm", action="store_true", help=f"show an arm; the task is {ARM_TASK} if none is named")
    add("--demos", type=whole, metavar="N", help="demonstrations (default: 25)")
    add("--suboptimality", type=float, metavar="B", help="of their scripted expert, 0 to 1 (default: 0.5)")
    add("--clone-updates", type=steps, metavar="N", help="updates of the clone (default: 1000)")
    add("--steps", type=steps, metavar="N", help="environment steps of the correction (default: 20k)")
    add("--trials", type=whole, metavar="N", help="recorded episodes (default: 10)")
    add = parser.add_argument_group("policies that are told in words").add_argument
    text = f"type an instruction for each episode of the --bundle (default: {TOLD}); nothing is trained"
    add("--language", action="store_true", help=text)
    text = "instead of asking for it; given several times, they are said in turn"
    add("--instruction", action="append", default=[], metavar="TEXT", help=text)
    add = parser.add_argument_group("corrections").add_argument
    text = "a scripted person corrects an arm's clone while a learner learns from it, in under ten minutes"
    add("--corrections", action="store_true", help=text)
    add("--minutes", type=float, metavar="M", help="length of the session (default: 4)")
    add("--page", action="store_true", help="serve the session's page and print its address")
    cli.add_json_option(parser)


def _run(args: argparse.Namespace) -> int:
    if args.corrections:
        return _corrections(args)
    if args.minutes is not None or args.page:
        raise UsageError("--minutes and --page belong to --corrections.")
    kind, bundle = _check(args)
    scenario, config = configure(args, kind, bundle)
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.demo.pipeline import Demo
    from gantry_sim.demo.scenario import REPORT, Display, TrainingStopped

    begin, output = time.monotonic(), config.output
    print(f"Gantry demo in {output}", flush=True)
    training = ProgressBar("train")
    display = Display(lambda text: print(text, flush=True), training.update, lambda title: ProgressBar(title).share)
    try:
        with interrupt_on_terminate():
            outcome = Demo(scenario, config, display).run()
    except TrainingStopped as stopped:
        training.close()
        folder, redone = stopped.args
        print(f"Stopped while training; {cost_text(redone)}. Go on with: gantry train --resume {folder}")
        print(f"and then: gantry demo --bundle {folder}")
        return 130
    except KeyboardInterrupt:
        print(f"\nStopped; every process of the demo has ended. What there is lies in {output}", file=sys.stderr)
        return 130
    _print_scores(outcome)
    print(f"{'Passed' if outcome.passed else 'NOT passed'} after {clock(time.monotonic() - begin)} min.")
    print(f"Report: {(output / REPORT).resolve()}")
    path = outcome.bundle.path
    print(f"Bundle: {path}\nNext:   gantry check {path}, or watch it: gantry play {path}")
    cli.emit_result(args, outcome.result())
    return 0 if outcome.passed else 1


def _corrections(args: argparse.Namespace) -> int:
    """Run the demo of corrections; the exit code is 1 if the policy is no better afterwards."""
    strange = [name for name in TAKEN_BY if getattr(args, name) not in (None, [], False) and name not in CORRECTING]
    if strange or args.pretrained or args.bundle:
        name = _option(strange[0]) if strange else "--bundle or --pretrained"
        raise UsageError(f"{name} does not go with --corrections.")
    begin, output = time.monotonic(), args.output or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    _check_output(args.output)
    _check_numbers(args, LEAST | {"episodes": 1})
    minutes = 4.0 if args.minutes is None else args.minutes
    finite("--minutes", minutes, 0.2, 600.0, UsageError)
    given = {name: getattr(args, name) for name in CORRECTING if getattr(args, name) is not None}
    task = require_task(args.task or ARM_TASK)
    from gantry_deploy.process.interrupts import interrupt_on_terminate
    from gantry_sim.demo.corrections import REPORT, CorrectionsDemoCfg, run_corrections_demo

    cfg = CorrectionsDemoCfg(output, task, minutes=minutes, seed=args.seed, page=args.page, **given)
    print(f"Gantry demo of corrections in {output}", flush=True)
    try:
        with interrupt_on_terminate():
            result = run_corrections_demo(cfg, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print(f"\nStopped; every process of the demo has ended. What there is lies in {output}", file=sys.stderr)
        return 130
    before, after, hashes = result["before"]["mean"], result["after"]["mean"], result["weights_sha256"]
    print(f"held-out success: {before:.1%} before, {after:.1%} after {result['person_s']:.0f} s of the person's time")
    print(f"{result['steps']} steps in {result['attempts']} attempts, {result['corrections']} corrections")
    if not result["learned"]:
        print("The learner was still imitating the demonstrations when the time was over; give more --minutes.")
    print(f"weights that were scored and checked: {hashes['evaluated'][:12]}, {hashes['checked'][:12]}")
    print(f"Report: {(output / REPORT).resolve()}   after {clock(time.monotonic() - begin)} min")
    cli.emit_result(args, result)
    return 0 if after > before and hashes["evaluated"] == hashes["checked"] else 1


def configure(args: argparse.Namespace, kind: str, bundle: Path | None) -> tuple[Scenario, DemoConfig]:
    """Build scenario and settings from the command line, for a bundle or to train one.

    Raises:
        GantryError: If something in it makes no sense.
    """
    from gantry_deploy.bundle.bundle import load_bundle
    from gantry_sim.demo.scenario import DemoConfig

    config = DemoConfig(
        output=args.output or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S"),
        bundle=bundle,
        seed=args.seed,
        ros=not args.no_ros,
        episodes=EPISODES if args.episodes is None else args.episodes,
        video=not args.no_video,
    )
    scenario = {LEGS: _legs, GOALS: _goals, ARM: _arm}[kind](args, bundle is not None)
    if bundle is not None:
        scenario.require(load_bundle(bundle))
    return scenario, config


def _legs(args: argparse.Namespace, is_finished: bool) -> Scenario:
    from gantry_sim.demo.scenarios.legs import Legs
    from gantry_sim.tasks.registry import find_task
    from gantry_sim.training.run_cfg import RunCfg

    task = find_task(args.task or TASK)
    run = None if is_finished else RunCfg(task, "cpu", changed(task.preset("cpu"), args.changes), "cpu", args.seed)
    if args.dynamics is not None:
        load_dynamics(args.dynamics)  # A file that is refused is answered before anything is trained.
    gate = args.check_episodes or GATE_EPISODES[is_finished]
    return Legs(run, args.seconds or SECONDS, gate, args.dynamics or "")


def _goals(args: argparse.Namespace, is_finished: bool) -> Scenario:
    if args.goal is not None and len(args.goal) != 3:
        raise UsageError(f"--goal has {len(args.goal)} numbers, expected 3: x and y in m, heading in rad.")
    from gantry_sim.demo.scenarios.goals import HELD_OUT, Goals, resolve_terrain
    from gantry_sim.robots.terrain_scene import TerrainCfg

    names = [name.strip() for text in args.terrain for name in text.split(",")]
    terrains = tuple(dict.fromkeys(map(resolve_terrain, names))) or HELD_OUT
    difficulty = 0.5 if args.difficulty is None else args.difficulty
    TerrainCfg("t1", difficulty)  # Refuses a number that makes no sense.
    return Goals(terrains, difficulty, args.goal, args.seconds or SECONDS)


def _arm(args: argparse.Namespace, is_finished: bool) -> Scenario:
    tasks = [name for name, embodiment in _embodiments().items() if DEMOS.get(embodiment) == ARM]
    task = cli.choose("manipulation task", args.task or ARM_TASK, tasks)
    from gantry_sim.demo.scenarios.arm import Arm
    from gantry_sim.demo.stages import Recipe, check_recipe

    given = {name: getattr(args, name) for name in LEARNING[1:] if getattr(args, name) is not None}
    recipe = Recipe(task, seed=args.seed, **given)
    if not is_finished:
        check_recipe(recipe)
    trials = args.trials or (TOLD_TRIALS if args.language else 10)
    asks = args.language and not args.instruction and sys.stdin.isatty()
    return Arm(recipe, trials, tuple(args.instruction), input if asks else None)


def _check(args: argparse.Namespace) -> tuple[str, Path | None]:
    """Kind of the demo and the bundle to show; refuses what can be refused before the learning libraries are loaded."""
    _check_numbers(args, LEAST)
    if args.language and (args.pretrained or args.task):
        other = "--pretrained" if args.pretrained else "--task"
        raise UsageError(f"--language shows a finished policy that is told in words; leave out {other}.")
    asked = PRETRAINED if args.pretrained else args.bundle or (TOLD if args.language else None)
    given = [name for name in TAKEN_BY if getattr(args, name) not in (None, [], False)]
    if asked is not None and (about := [_option(name) for name in given if name in LEARNING]):
        raise UsageError(f"{about[0]} is about learning; --bundle, --language and --pretrained train nothing.")
    _check_output(args.output)
    path, contract = None, None
    if asked is not None:
        from gantry_deploy.bundle.bundle import load_bundle

        path = find_bundle(bundle_in(find_source(asked)))
        contract = load_bundle(path).contract
    if args.language and contract is not None and contract.instruction is None:
        raise UsageError(f"--language: {asked} takes no instructions; leave the option out, or name another --bundle.")
    kind = ARM if args.arm else _kind(args.task, contract)
    for name in given:
        if kind not in TAKEN_BY[name]:
            belongs = f"{_option(name)} belongs to demos of {' and '.join(TAKEN_BY[name])}"
            raise UsageError(f"{belongs}, and this is one of {kind}.{HINTS.get(kind, '')}")
    if contract is not None and kind != (shown := _kind(None, contract)):
        raise UsageError(f"--arm: {asked} is a policy for demos of {shown}; leave the option out.")
    if kind == LEGS and path is None:
        require_task(args.task or TASK)
    return kind, path


def _check_numbers(args: argparse.Namespace, smallest: Mapping[str, float]) -> None:
    for name, least in smallest.items():
        if (value := getattr(args, name)) is not None and not value >= least:
            raise UsageError(f"{_option(name)} is {value:g}, expected {least:g} or more.")
    if args.suboptimality is not None and not 0.0 <= args.suboptimality <= 1.0:
        raise UsageError(f"--suboptimality is {args.suboptimality:g}, expected 0 to 1.")


def _check_output(folder: Path | None) -> None:
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"'{folder}' is in use already; name another folder for this demo with --output.")


def _kind(task: str | None, contract: PolicyContract | None) -> str:
    """Kind of the demo of a bundle, or of a task's policies; the usual one where a task does not exist."""
    from gantry_deploy.contract.policy_contract import BODY_POSE

    if contract is not None:
        embodiment, follows_goals = contract.embodiment, contract.command.kind == BODY_POSE
    else:
        embodiment, follows_goals = _embodiments().get(task or TASK, "legs"), False
    if embodiment not in DEMOS:
        what = f"'{task}'" if contract is None else f"a policy of robot '{contract.robot}'"
        raise UsageError(
            f"There is no demo of embodiment '{embodiment}', which {what} has; there are demos of: {', '.join(DEMOS)}. "
            "gantry train, gantry eval and gantry play know it."
        )
    return GOALS if follows_goals else DEMOS[embodiment]


def _embodiments() -> dict[str, str]:
    """Embodiments by the names of tasks, of those that describe themselves and are of no family."""
    own = (info for info in described().values() if family_of(info.name) is None)
    return {info.name: robot_spec(info.robot).embodiment for info in own}


def _option(name: str) -> str:
    return "--set" if name == "changes" else f"--{name.replace('_', '-')}"


def _print_scores(outcome: Outcome) -> None:
    scores = outcome.scores()
    width = max(len(score.name) for score in scores)
    for score in scores:
        verdict = {None: "    ", True: "pass", False: "FAIL"}[score.passed]
        sign = "at least" if score.above else "at most"
        limit = "" if score.limit is None else f"  ({sign} {score.text(score.limit)})"
        print(f"{verdict}  {score.name:<{width}}  {score.text(score.value)}{limit}")
    print(", ".join(f"{name}: {text}" for name, text in outcome.scenario.headline(outcome)[1].items()))


COMMAND = Command(
    name="demo",
    help="train or correct a policy, export it, run it over ROS 2, and write a report",
    add_arguments=_add_arguments,
    run=_run,
    description=(
        "Train a policy on this machine's CPU, score it on held-out episodes, export it as a bundle, check it, run "
        "simulated robot and policy as ROS 2 nodes, and write all of it into one self-contained report.html. The "
        "bundle of a policy that walks to goals by a map crosses held-out terrain by what its camera sees. With --arm, "
        "demonstrations are cloned, and the clone is corrected by trying. Exit code 0 if every threshold is met, 1 if "
        "one is not; the report is written either way."
    ),
    epilog="""examples:
  gantry demo
  gantry demo --pretrained
  gantry demo --corrections
  gantry demo --language
  gantry demo --language --bundle runs/tell --instruction "push the red cube to the white disc" --trials 2
  gantry demo --bundle runs/walk --seconds 10 --no-video --json demo.json
  gantry demo --bundle runs/student --terrain t1,t2
  gantry demo --arm --demos 20 --steps 8k --trials 5""",
)
