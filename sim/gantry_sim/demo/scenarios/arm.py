"""The demo of an arm: demonstrate, clone, correct by trying, score, and run episodes of the task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.cli.command import counted
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Event, SafetyConfig
from gantry_deploy.control.supervised_run import WalkSession
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.evaluation.metrics import Score as Interval
from gantry_deploy.evaluation.metrics import rate_interval
from gantry_deploy.report import Score
from gantry_hardware.backends.backend import Robot
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.demo import page, stages
from gantry_sim.demo.measured import Measured, MeasuredEpisode, Trial, measure_episodes, read_trials
from gantry_sim.demo.rollout import ROBOT, TRIALS, Plan, Rollout, Say
from gantry_sim.demo.scenario import VIDEO, DemoConfig, Display, Outcome, Policy, Recorded, Scenario, Section, Step
from gantry_sim.demo.scenarios.arm_film import film_arm
from gantry_sim.demo.scenarios.arm_page import learning, numbers_of, percent, recorded_episodes, summary
from gantry_sim.demo.scenarios.arm_words import Read, check_instructions, choose_instructions
from gantry_sim.demo.stages import Learned, Recipe, Scores

ROUTINE = ("Mode STAND.", "Mode POLICY.", "Mode PASSIVE.", "Joint commands arrive.")
"""Messages of the nodes in every episode; for the log alone."""
OVERHEAD_S = 8.0
"""Time that an episode may take beside its own: laying out, moving to the start, holding, asking."""
STATE_TIMEOUT_S = 0.1
"""Largest age of the arm's state."""
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "policy_node": {
        "connect_timeout_s": 90.0,
        "diagnostics_rate_hz": 20.0,
        "record_scene": True,
        "safety.state_timeout_s": STATE_TIMEOUT_S,
    },
    "sim_robot_node": {"diagnostics_rate_hz": 20.0, "watchdog_s": 0.2},
}
"""Parameters by node name."""


@dataclass(frozen=True)
class Arm(Scenario):
    """Episodes of a manipulation task."""

    recipe: Recipe = field(default_factory=Recipe)
    """Amounts to learn; unused with a finished policy."""
    trials: int = 10
    """Recorded episodes, the object laid anew for each."""
    instructions: tuple[str, ...] = ()
    """Said in turn to a policy that is told in words; empty: what each episode's task asks for."""
    read: Read | None = None
    """Asks a person for the instruction of each episode, if none are given; None: the tasks' own are taken."""

    def require(self, bundle: Bundle) -> None:
        """Refuse instructions that the policy could not follow."""
        check_instructions(bundle.contract.instruction, self.instructions)

    def learn(self, config: DemoConfig, policy: Policy, display: Display) -> Sequence[Step]:
        """Demonstrate, clone, correct, score and export; or score."""
        recipe, folder, say = self.recipe, config.output, display.say
        number = counted(config.episodes, "held-out episode")

        def score(run: Path | None) -> Scores:
            share = display.share("evaluate")
            found = (
                stages.evaluate_bundle(policy.path, folder, config.episodes, share)
                if run is None
                else stages.evaluate_trained(run, config.episodes, share)
            )["training_model"]
            once, steps = found["success_once"], found["steps_to_success"]
            after = "" if steps is None else f", after {steps:.0f} steps"
            say(f"  success {percent(once['mean'])} [{100 * once['low']:.0f}, {100 * once['high']:.0f}]{after}")
            return found

        def score_policy(run: Path | None = None) -> None:
            policy.evaluation, policy.evaluation_note = score(run), ""

        def scored(name: str, what: str, run: Callable[[], None]) -> list[Step]:
            return [Step(name, f"Score {what} on {number}", run)] if config.episodes else []

        if config.bundle is not None:
            return scored("score", "it", score_policy)
        policy.learned = learned = Learned(recipe)
        base, residual = folder / stages.BASE, folder / stages.RESIDUAL

        def clone() -> None:
            stages.train_run(stages.clone_run(recipe, folder), base, display)

        def demonstrate() -> None:
            done = stages.demonstrate(recipe, folder, display.share("collect"))
            learned.demo_frames, learned.expert_success = done.frames, done.succeeded / max(1, done.tried)
            say(f"  {done.succeeded} of {done.tried} tries succeeded; {done.frames} steps")

        def score_base() -> None:
            learned.base = score(base)

        def correct() -> None:
            stages.train_run(stages.residual_run(recipe, folder), residual, display)
            learned.looks, rows = stages.metrics_of(residual, "eval"), stages.metrics_of(residual, "train")
            learned.corrections = [row for row in rows if row.get("own_action") is not None]

        def export() -> None:
            policy.path = stages.export_trained(residual, policy.path)

        experts = f"{counted(recipe.demos, 'demonstration')} of {recipe.task} by an expert of suboptimality"
        updates = f"Clone them in {recipe.clone_updates} updates"
        return [
            Step("demonstrations", f"Record {experts} {recipe.suboptimality:g}", demonstrate),
            Step("clone", updates, clone),
            *scored("score of the clone", "the clone", score_base),
            Step("correction", f"Learn a correction by trying, {recipe.steps} steps", correct),
            *scored("score", "clone and correction", partial(score_policy, residual)),
            Step("export", "Export both as one bundle", export),
        ]

    def rollouts(self, where: str) -> Mapping[str, str]:
        """All episodes in one recording."""
        nodes = ": arm, policy and operator as processes" if "ROS" in where else ""
        return {"episodes": f"Run {counted(self.trials, 'episode')} {where}{nodes}"}

    def plan(self, name: str, bundle: Bundle, folder: Path, say: Say) -> Plan:
        """The episodes, by the launch description ``sim_arm`` or in this process."""
        task = bundle.contract.provenance.task
        episode_s, options = stages.episode_s(task), embodiment_of(bundle.contract).simulated_options(bundle.contract)
        told: tuple[str, ...] = ()
        if bundle.contract.instruction is not None:
            told = choose_instructions(task, bundle, self.trials, self.instructions, folder, say, self.read)

        def operate(controller: Controller, robot: Robot, say: Say) -> bool:
            assert isinstance(robot, BenchRobot)
            trials: list[Trial] = []
            while len(trials) < self.trials and controller.safety.fault is None:
                text = told[len(trials)] if told else ""
                trials.append(_episode(controller, robot, episode_s, text))
                result = "done" if trials[-1].done else trials[-1].reason
                say(f"Episode {len(trials)} of {self.trials}: {result}.")
            stages.write_json(folder / TRIALS, {"episodes": [asdict(trial) for trial in trials]})
            return controller.safety.fault is None

        return Plan(
            bundle=bundle.path,
            folder=folder,
            launch="sim_arm",
            arguments={
                "task": task,
                "seed": stages.EPISODES_SEED,
                "auto_start": "false",
                "episodes": self.trials,
                "instructions": ";".join(told),
                "episode_seconds": episode_s,
            },
            outputs={"robot_statistics": ROBOT, "episode_results": TRIALS},
            done="Done.",
            seconds=self.trials * (episode_s + OVERHEAD_S),
            make_robot=lambda spec, paced: BenchRobot(spec, seed=stages.EPISODES_SEED, realtime=paced, **options),
            operate=operate,
            parameters=PARAMETERS,
            safety=SafetyConfig(state_timeout_s=STATE_TIMEOUT_S),
            routine=ROUTINE,
        )

    def measure(self, name: str, plan: Plan, rollout: Rollout, bundle: Bundle) -> Sequence[Measured]:
        """All episodes."""
        return measure_episodes(rollout.recording, read_trials(plan.folder / TRIALS))

    def films(self, recorded: Recorded, bundle: Bundle, share: Callable[[float], None]) -> Iterator[tuple[str, bytes]]:
        """All episodes one after the other."""
        yield VIDEO, film_arm(recorded.episodes, bundle.contract.provenance.task, share)

    def held_out(self, outcome: Outcome) -> Sequence[Score]:
        """Success of clone and correction, gain, steps and sizes of actions."""
        found, learned = outcome.policy.evaluation, outcome.policy.learned
        if found is None:
            return []
        base, least = None if learned is None else learned.base, outcome.bundle.contract.acceptance.min_success_rate
        rows = [] if base is None else [_share("held out: the clone alone", base)]
        name = "held out: clone and correction" if learned is not None else "held out: success"
        rows.append(_share(name, found, least))
        if base is not None:
            gain = found["success_once"]["mean"] - base["success_once"]["mean"]
            note = "share of successes with the correction minus without it, on episodes that begin alike"
            rows.append(Score("held out: gain", gain, 0.0, "%", above=True, note=note))
            rows.append(Score("held out: steps to success, the clone", _or_nan(base["steps_to_success"])))
        rows.append(Score("held out: steps to success", _or_nan(found["steps_to_success"])))
        for key, word in (("mean_base_action", "base action"), ("mean_residual", "correction")):
            if key in found:
                rows.append(Score(f"held out: mean |{word}|", found[key], note="of 1, the largest action"))
        return rows

    def judge(self, recorded: Recorded, bundle: Bundle) -> Sequence[Score]:
        """Success of the recorded episodes, faults, and time to success."""
        done, where = self._done(recorded), recorded.rollout.where
        share, least = rate_interval(len(done), self.trials), bundle.contract.acceptance.min_success_rate
        note = f"{len(done)} of {counted(self.trials, 'episode')}, judged by the simulator; {_interval(share)}"
        times = [episode.done_after_s for episode in done if episode.done_after_s is not None]
        mean_s = float(np.mean(times)) if times else math.nan
        damped = float(not recorded.rollout.completed)
        return [
            Score(f"{where}: success", share.mean, least, "%", above=True, note=note),
            Score(f"{where}: faults", damped, 0.0, note=recorded.rollout.trouble),
            Score(f"{where}: time to success", mean_s, unit="s", note="mean of those that did the task"),
        ]

    def _done(self, recorded: Recorded) -> list[MeasuredEpisode]:
        return [episode for episode in recorded.episodes if episode.trial.done]

    def headline(self, outcome: Outcome) -> tuple[str, Mapping[str, str], str]:
        """Title, tiles and summary."""
        robot, learned = outcome.bundle.contract.robot.upper(), outcome.policy.learned
        can = "learned to " if learned is not None else "knows how to "
        tiles = {}
        if learned is not None and learned.base is not None:
            tiles["success of the clone"] = percent(learned.base["success_once"]["mean"])
        if outcome.policy.evaluation is not None:
            word = "with the correction" if learned is not None else "success, held out"
            tiles[word] = percent(outcome.policy.evaluation["success_once"]["mean"])
        tiles[outcome.where] = f"{len(self._done(outcome.recorded[0]))} of {self.trials}"
        title = f"A {robot} {can}{stages.task_summary(outcome.task)}, and does it {outcome.where}"
        return title, tiles, summary(outcome)

    def sections(self, outcome: Outcome) -> Sequence[Section]:
        """Film, scores, learning, the episodes, the bundle, the origin."""
        episodes = outcome.recorded[0].episodes
        arrows = (
            " Orange arrow: where the base wants the hand to go; green, three times as long: what the correction adds."
        )
        shows = bool(episodes) and episodes[0].base_action is not None
        caption = "The recorded episodes in real time, ways to the start left out." + arrows * shows
        return [page.film(caption), page.scores, learning, recorded_episodes, page.gate, page.origin]

    def rollout_result(self, recorded: Recorded) -> dict[str, Any]:
        """Success, and a row for each episode."""
        return {
            "asked": self.trials,
            "success": asdict(rate_interval(len(self._done(recorded)), self.trials)),
            "episodes": [numbers_of(episode) for episode in recorded.episodes],
        }


def _episode(controller: Controller, robot: BenchRobot, seconds: float, instruction: str) -> Trial:
    """Lay the object anew, tell the policy its instruction, if there is one, and let it act until the task is done or
    lost, or time is over, in s.

    Raises:
        SafetyError: If the arm may not move.
    """
    ends: list[Trial] = []

    def is_over() -> bool:
        if robot.task_done:
            ends.append(Trial(True, controller.robot.now_s()))
        elif robot.task_lost:
            ends.append(Trial(False, reason="the object is out of reach, or another thing was moved"))
        return bool(ends)

    robot.reset()
    if instruction:
        robot.ask(instruction)
        controller.instruct(instruction)
    if robot.goal_in_base_m is not None:
        controller.set_command(robot.goal_in_base_m, robot.now_s())
    WalkSession(controller, None, seconds, lambda text: None, is_over).run()
    fault = controller.safety.fault
    if fault is None:
        controller.request(Event.STOP)
    late = f"not done within {seconds:g} s" if fault is None else fault.text.rstrip(".")
    return ends[0] if ends else Trial(False, reason=late)


def _share(name: str, scores: Scores, limit: float | None = None) -> Score:
    found = Interval(**scores["success_once"])
    note = f"{counted(scores['episodes'], 'episode')}, seed {scores['seed']}; {_interval(found)}"
    return Score(name, found.mean, limit, "%", above=True, note=note)


def _interval(found: Interval) -> str:
    return f"95 % interval {100 * found.low:.0f} to {100 * found.high:.0f} %"


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
