"""Options and displays that the training commands share."""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import UsageError, choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_deploy.contract.policy_contract import Acceptance
    from gantry_hardware.training.trainer import Progress
    from gantry_sim.tasks.registry import Preset


def add_task_argument(parser: argparse.ArgumentParser) -> None:
    """The task to work on, checked when it is looked up."""
    parser.add_argument("task", metavar="TASK", help="task name; see `gantry tasks`")


def add_set_option(parser: argparse.ArgumentParser) -> None:
    """Offer ``--set``; :func:`changed` applies it."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="changes",
        help="change a field of the preset, for example env.num_envs=512; may be given several times",
    )


def changed(preset: Preset, changes: Sequence[str]) -> Preset:
    """A preset with fields replaced as ``--set`` asks.

    Raises:
        GantryError: If there is no such field, or the value does not fit.
    """
    from gantry_hardware.files.structured import set_fields

    return set_fields(preset, assignments(changes, "env.num_envs=512"))


def assignments(changes: Sequence[str], example: str) -> list[tuple[str, str]]:
    """Field and value of each ``FIELD=VALUE``.

    Raises:
        UsageError: If one is not of that form; the message has the example.
    """
    parts = [change.partition("=") for change in changes]
    for change, (_, equals, _) in zip(changes, parts, strict=True):
        if not equals:
            raise UsageError(f"--set {change}: expected FIELD=VALUE, for example {example}.")
    return [(path, text) for path, _, text in parts]


def preset_for(device: str, asked: str | None, available: list[str]) -> str:
    """The preset that was asked for, or else the one that suits the device, or else the first.

    Raises:
        UnknownNameError: If there is no such preset.
    """
    if asked is not None:
        return choose("preset", asked, available)
    usual = "cpu" if device == "cpu" else "gpu"
    return usual if usual in available else available[0]


def cpu_notice(preset: str, device: str, available: list[str]) -> str:
    """A sentence where a preset for a GPU is trained on the CPU; empty elsewhere.

    Args:
        preset: Name of the preset.
        device: Where it is trained.
        available: Names of the task's presets.
    """
    if device != "cpu" or preset.partition("-")[0] != "gpu":
        return ""
    import torch

    smaller = "; --preset cpu is made for it" if "cpu" in available else ""
    if torch.cuda.is_available():
        return (
            f"Preset {preset} runs on the CPU, and will be slow there{smaller}; the GPU is used with --device cuda:0."
        )
    return f"No CUDA device was found: preset {preset} runs on the CPU, and will be slow there{smaller}."


def whole(text: str) -> int:
    """A number from 0; an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0")
    return int(text)


def steps(text: str) -> int:
    """A number of steps, for example ``200000``, ``200k`` or ``1.5M``; an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)([kM]?)", text)
    number = 0.0 if match is None else float(match[1]) * {"": 1.0, "k": 1e3, "M": 1e6}[match[2]]
    if number < 1.0 or not round(number, 3).is_integer():
        raise argparse.ArgumentTypeError(f"'{text}' is no number of steps; expected for example 200000, 200k or 1.5M")
    return round(number)


def steps_text(count: int) -> str:
    """A number of steps as :func:`steps` takes it, if it is a round one: ``200k``, ``1.5M``."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size and count % (size // 100) == 0:
            return f"{count / size:g}{unit}"
    return str(count)


def amount_text(count: int) -> str:
    """About how many, in the unit that suits it: ``950``, ``20.5 k``, ``1.25 M``."""
    if count < 1_000:
        return str(count)
    return f"{count / 1e3:.1f} k" if count < 999_950 else f"{count / 1e6:.2f} M"


class ProgressBar:
    """One line with progress, speed, the numbers that say most, and time left; plain lines without a terminal.

    Args:
        title: First word of the line.
        minutes: Time after which the work ends at the latest; 0 for no such limit.
    """

    def __init__(self, title: str, minutes: float = 0.0) -> None:
        self._title = title
        self._limit_s = 60.0 * minutes
        self._live = sys.stderr.isatty()
        self._shown = 0.0
        self._done = 0
        """Units that were shown or passed over."""
        self._last = time.monotonic()
        """When the last row came."""
        self._first: Progress | None = None

    def step(self, number: int, count: int) -> None:
        """Show where a long piece of work is.

        Args:
            number: Its step, from 1.
            count: How many there are.
        """
        now = time.monotonic()
        if now - max(self._last, self._shown) < 10.0:
            return
        self._shown = now
        text = f"{self._title}: step {number} of {count} in iteration {self._done + 1}"
        sys.stderr.write(f"\r\x1b[2K{text}" if self._live else text + "\n")
        sys.stderr.flush()

    def update(self, progress: Progress) -> None:
        """Show a row of metrics; evaluations get lines of their own."""
        now = self._last = time.monotonic()
        self._done = progress.done
        if progress.evaluation is not None:
            self._line(_evaluation_text(progress), ends=True)
            return
        first = self._first = self._first or progress
        last = progress.done >= progress.total
        if not last and now - self._shown < (0.2 if self._live else 10.0):
            return
        self._shown = now
        share, remaining_s = min(1.0, progress.done / max(1, progress.total)), progress.remaining_s
        if self._limit_s:
            share = max(share, min(1.0, progress.wall_s / self._limit_s))
            remaining_s = min(remaining_s, self._limit_s - progress.wall_s)
        parts = [_done_text(progress, first), *_metric_texts(progress.metrics)]
        parts.append(f"{clock(progress.wall_s)} + {clock(max(0.0, remaining_s))} left")
        self._line(f"{self._title} {bar(share)} {100 * share:3.0f} %  " + "  ".join(parts), ends=last)

    def _line(self, text: str, *, ends: bool) -> None:
        sys.stderr.write(f"\r\x1b[2K{text}" + ("\n" if ends else "") if self._live else text + "\n")
        sys.stderr.flush()

    def share(self, share: float) -> None:
        """Show a share of work without numbers."""
        now = time.monotonic()
        if not self._live or (share < 1.0 and now - self._shown < 0.2):
            return
        self._shown = now
        sys.stderr.write(f"\r\x1b[2K{self._title} {bar(share)} {100 * share:3.0f} %" + ("\n" if share >= 1.0 else ""))
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self._live:
            sys.stderr.write("\n")


def _done_text(progress: Progress, first: Progress) -> str:
    """Work so far, and its speed."""
    if progress.env_steps:
        speed = progress.metrics.get("steps_per_s") or _speed(
            progress.env_steps - first.env_steps, progress.wall_s - first.wall_s
        )
        phase = "" if progress.phase == "learn" else f"{progress.phase}  "
        rate = "" if progress is first and not speed else f"  {amount_text(round(speed))}/s"
        return f"{phase}{amount_text(progress.env_steps)} steps{rate}"
    speed = _speed(progress.done - first.done, progress.wall_s - first.wall_s)
    rate = "" if progress is first else f"  {speed:.1f}/s" if speed < 10.0 else f"  {speed:.0f}/s"
    return f"{progress.phase}  {progress.done} of {progress.total}{rate}"


def _speed(count: float, seconds: float) -> float:
    return count / max(1e-9, seconds)


def _metric_texts(metrics: dict[str, float]) -> list[str]:
    """The numbers that say most, those of them that there are."""
    shown = {
        "reward_per_s": "reward {:.2f}/s",
        "lin_vel_error_m_s": "velocity error {:.3f} m/s",
        "success_in_training": "success {:.0%}",
        "return_in_training": "return {:.2f}",
        "value": "value {:.2f}",
        "validation_l1": "error {:.3f}",
    }
    return [text.format(metrics[name]) for name, text in shown.items() if name in metrics]


def _evaluation_text(progress: Progress) -> str:
    found = progress.evaluation
    score = found.success_once
    steps = "" if found.steps_to_success is None else f", {found.steps_to_success:.0f} steps"
    interval = f"[{100 * score.low:.0f}, {100 * score.high:.0f}] of {found.episodes}"
    when = f"evaluation after {progress.done} {progress.unit}s, {clock(progress.wall_s)}"
    return f"{when}: success {100 * score.mean:.0f} % {interval}{steps}, return {found.mean_return:.2f}"


def bar(share: float, width: int = 24) -> str:
    """A share as a row of blocks."""
    full = round(width * share)
    return "█" * full + "░" * (width - full)


def clock(seconds: float) -> str:
    """A time as minutes and seconds, with hours where there are some."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


INTERVAL = "mean, and its 95 % interval in brackets"
"""Meaning of each score's numbers in :func:`print_scores`."""
_UNITS = {"_rad_s": "rad/s", "_nm_s": "N m/s", "_w": "W", "_m_s": "m/s", "_rad": "rad", "_m": "m", "_s": "s"}
"""Units by the end of a name; longer ones first."""


def print_scores(result: dict[str, Any], title: str = "") -> None:
    """Scores of an evaluation with their intervals, and those of its parts under their names; means without one as
    they are."""
    rows = _score_rows(result, title)
    width = max([20, *(len(label) for label, _ in rows)])
    for label, text in rows:
        print(f"  {label:<{width}} {text}")


def _score_rows(result: dict[str, Any], title: str) -> list[tuple[str, str]]:
    rows = []
    for name, score in result.items():
        label = title + score_label(name)
        if isinstance(score, float) and name.startswith(("mean_", "steps_", "time_")):
            rows.append((label, f"{score:.3f}"))
        elif isinstance(score, dict) and "mean" not in score:
            rows += _score_rows(score, f"{title}{name}, ")
        elif isinstance(score, dict):
            rows.append((label, f"{score['mean']:.3f}  [{score['low']:.3f}, {score['high']:.3f}]"))
    return rows


def score_label(name: str) -> str:
    """Words for a score's name, with its unit: ``mean speed (m/s)`` for ``mean_speed_m_s``."""
    ending = next((ending for ending in _UNITS if name.endswith(ending)), "")
    unit = f" ({_UNITS[ending]})" if ending else ""
    return name.removesuffix(ending).replace("_", " ") + unit


def print_verdicts(scores: dict[str, Any], acceptance: Acceptance) -> bool:
    """Say of each score that the contract has a threshold for whether it is met, as `gantry check` does.

    Args:
        scores: Of an evaluation.
        acceptance: The contract's thresholds.

    Returns:
        Whether all are; true where nothing is asked for.
    """
    from gantry_deploy.evaluation.metrics import verdicts_on

    verdicts = verdicts_on(scores, acceptance)
    if verdicts:
        print(f"What is asked of this task, of the {scores['model']} model:")
    for verdict in verdicts:
        print(f"{'pass' if verdict.passed else 'FAIL'}  {verdict.name:<28}{verdict.text}")
    return all(verdict.passed for verdict in verdicts)
