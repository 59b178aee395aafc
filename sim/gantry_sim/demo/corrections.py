"""Demo of corrections: a poor clone, a scripted person, a learner beside them, and one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantry_deploy.report import Report
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import read_json
from gantry_hardware.training.trainer import CHECKPOINTS
from gantry_sim.benchmarks.comparison import call_gantry
from gantry_sim.benchmarks.corrections.trial import run_trial
from gantry_sim.training.run_files import write_json

REPORT, RESULT = "report.html", "demo.json"
"""Files of the demo in its folder, beside demonstrations, runs, and the session's dataset."""
RECENT = 20
"""Attempts of a session over which its success is told."""


@dataclass(frozen=True)
class CorrectionsDemoCfg:
    """Settings of the demo."""

    output: Path
    """Folder for everything."""
    task: str = "yam-lift"
    """Task of manipulation."""
    preset: str = "hil-weighted"
    """Way to learn from corrections."""
    minutes: float = 4.0
    """Time of the session, min."""
    demos: int = 12
    """Demonstrations."""
    suboptimality: float = 0.4
    """Of the expert that demonstrates, 0 to 1."""
    episodes: int = 100
    """Held-out episodes before and after, and of the bundle's check."""
    speed: float = 2.0
    """Factor on the clock that the simulated robot does not outrun."""
    page: bool = False
    """Whether the session serves its page."""
    seed: int = 1
    """Of learner and person."""


Session = Callable[[CorrectionsDemoCfg, Sequence[str], Callable[[str], None]], dict[str, Any]]
"""A session with a learner in ``output/session/run``: settings, words of ``gantry train``, and where lines go; returns
what ``gantry session start`` tells at its end."""


def run_corrections_demo(
    cfg: CorrectionsDemoCfg, say: Callable[[str], None] = print, session: Session | None = None
) -> dict[str, Any]:
    """Record, clone, correct, score and check, by the ordinary commands.

    Args:
        cfg: Settings.
        say: Called with a line before each step.
        session: How the policy is corrected; None for the simulator without ROS 2, see :func:`plain_session`.

    Returns:
        Plain data: ``before`` and ``after`` (held-out success), ``deployed`` (success of the bundle in the other
        simulator), ``learned`` (whether anything was learned from the session), ``weights_sha256`` of session,
        evaluation and check, ``person_s``, ``steps``, ``attempts``.

    Raises:
        GantryError: If a step fails; what was done is kept.
        KeyboardInterrupt: If it was interrupted; its processes have ended.
    """
    out, task, demos = cfg.output, cfg.task, cfg.output / "demos"
    out.mkdir(parents=True, exist_ok=True)
    say(f"[1/5] {cfg.demos} demonstrations of suboptimality {cfg.suboptimality:g}")
    words = ("collect", task, "--episodes", str(cfg.demos), "--suboptimality", str(cfg.suboptimality))
    call_gantry((*words, "--output", str(demos), "--json", str(out / "demos.json")))
    say("[2/5] a clone of them, as it is before any correction")
    words = ("train", task, "--preset", "dagger", "--demos", str(demos), "--steps", "1", "--seed", str(cfg.seed))
    call_gantry(
        (*words, "--run-dir", str(out / "clone"), "--no-export", "--episodes", "0", "--json", str(out / ".clone.json"))
    )
    before = _scored(out / "clone", cfg.episodes, out / "before.json")
    say(f"[3/5] a session of {cfg.minutes:g} minutes: robot and person, and a learner beside them")
    told, run = (session or plain_session)(cfg, _learner(cfg, demos), say), out / "session" / "run"
    say("[4/5] the policy that was learned")
    after = _scored(run, cfg.episodes, out / "after.json")
    call_gantry(("export", str(run), "--output", str(out / "bundle"), "--json", str(out / "export.json")))
    say("[5/5] its bundle in the other simulator, at the runtime's own loop")
    check = out / "check.json"
    call_gantry(("check", str(out / "bundle"), "--episodes", str(cfg.episodes), "--json", str(check)))
    result = {
        "before": _success(before),
        "after": _success(after),
        "deployed": read_json(check)["scores"],
        "weights_sha256": {"evaluated": after["weights_sha256"], "checked": read_json(check)["weights_sha256"]},
        "learned": _learned(run),
        "person_s": told["person_s"],
        "rate_hz": told["loop"]["rate_hz"],
        **{name: told[name] for name in ("steps", "attempts", "corrections", "episodes", "learner")},
    }
    write_json(out / RESULT, result)
    make_page(cfg, result).write(out / REPORT)
    return result


def plain_session(cfg: CorrectionsDemoCfg, learner: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    """A simulated robot and a scripted person in one process, see :data:`Session`."""
    told = run_trial(cfg.output / "session", learner, [_actor(cfg)], 60.0 * cfg.minutes, say)
    return told["sessions"][0]


def make_page(cfg: CorrectionsDemoCfg, result: dict[str, Any]) -> Report:
    """Success before and after, the session's curve, and the hashes."""
    import numpy as np

    from gantry_deploy.report.corrections import attempts_over_time

    before, after = result["before"], result["after"]
    report = Report(f"Corrections: {cfg.task}", f"preset {cfg.preset}, scripted person, {cfg.minutes:g} minutes").tiles(
        {
            "success before": f"{before['mean']:.0%}",
            "success after": f"{after['mean']:.0%}",
            "person-seconds": f"{result['person_s']:.0f}",
            "steps": str(result["steps"]),
        }
    )
    rows = [
        [name, f"{score['mean']:.1%}", f"{score['low']:.1%} to {score['high']:.1%}"]
        for name, score in (("clone, before", before), ("corrected, after", after))
    ]
    report.section("Held-out episodes").table(rows, ["policy", "success", "95 % interval"], f"{cfg.episodes} each.")
    episodes = [item for item in result["episodes"] if item["steps"]]
    shares = np.array([item["by_person"] / item["steps"] for item in episodes])
    lengths_s = np.array([item["steps"] for item in episodes]) / result["rate_hz"]
    figure = attempts_over_time(shares, lengths_s, [item["success"] for item in episodes])
    report.section("The session").figure(figure, "Attempts in their order.")
    hashes = [[name, value] for name, value in result["weights_sha256"].items()]
    report.section("Weights").table(hashes, ["where", "SHA-256"], "The bundle holds the weights that were scored.")
    return report


def _learned(run: Path) -> bool:
    """Whether the learner has learned from a step of the session, after what it does before the first."""
    from gantry_policies.common.checkpoint import load_newest

    return int(load_newest(run / CHECKPOINTS)[1]["collector"]["env_steps"]) > 0


def _learner(cfg: CorrectionsDemoCfg, demos: Path) -> tuple[str, ...]:
    words = (cfg.task, "--preset", cfg.preset, "--demos", str(demos), "--seed", str(cfg.seed))
    return (*words, "--episodes", "0", "--no-export")


def _actor(cfg: CorrectionsDemoCfg) -> tuple[str, ...]:
    words = ("--device", "scripted", "--device-option", f"seed={cfg.seed}", "--speed", str(cfg.speed))
    words += ("--option", f"seed={1000 + cfg.seed}", "--duration", "1000000")
    return (*words, "--dataset", str(cfg.output / "dataset"), *(("--page",) if cfg.page else ()))


def _scored(run: Path, episodes: int, told: Path) -> dict[str, Any]:
    call_gantry(("eval", str(run), "--episodes", str(episodes), "--json", str(told)))
    return read_json(told)


def _success(scores: dict[str, Any]) -> dict[str, float]:
    found = scores["training_model"]["success_rate"]
    if not isinstance(found, dict):
        raise GantryError(f"The evaluation told a success of {found}, expected a mean with its interval.")
    return {name: float(found[name]) for name in ("mean", "low", "high")}
