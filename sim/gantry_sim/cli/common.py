"""Options and displays that the training commands share."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.bundle.locate import is_run
from gantry_deploy.cli.command import UsageError, choose
from gantry_sim.tasks.names import is_arm_task
from gantry_sim.training.run_validation import trained_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_deploy.contract.policy_contract import Acceptance
    from gantry_policies.on_policy.runner import Progress
    from gantry_sim.tasks.registry import Preset


def is_about_arms(path: Path) -> bool:
    """Whether a run folder or a bundle is about manipulation, found without loading the learning libraries.

    Raises:
        BundleError: If it is no run folder and no intact bundle.
    """
    if is_run(path):
        return is_arm_task(trained_task(path))
    from gantry_deploy.bundle.bundle import load_bundle

    return load_bundle(path).contract.embodiment == "arm"


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
    from gantry_hardware.structured import set_fields

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
    """The preset that was asked for, or else the one that suits the device.

    Raises:
        UnknownNameError: If there is no such preset.
    """
    if asked is not None:
        return choose("preset", asked, available)
    return "cpu" if device == "cpu" else "gpu"


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


class ProgressBar:
    """One line with steps, speed, reward, tracking error and time left; plain lines without a terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._live = sys.stderr.isatty()
        self._shown = 0.0
        self._done = 0
        """Iterations that were shown or passed over."""
        self._last = time.monotonic()
        """When the last iteration ended."""

    def step(self, number: int, count: int) -> None:
        """Show where an iteration is that takes long.

        Args:
            number: Step of its rollout, from 1.
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
        """Show an iteration."""
        now = self._last = time.monotonic()
        self._done = progress.iteration
        last = progress.iteration == progress.iterations
        if not last and now - self._shown < (0.2 if self._live else 10.0):
            return
        self._shown = now
        share = progress.iteration / progress.iterations
        parts = [
            f"{progress.env_steps / 1e6:.2f} M steps",
            f"{progress.steps_per_s / 1e3:.1f} k/s",
        ]
        if "reward_per_s" in progress.metrics:
            parts.append(f"reward {progress.metrics['reward_per_s']:.2f}/s")
        if "lin_vel_error_m_s" in progress.metrics:
            parts.append(f"velocity error {progress.metrics['lin_vel_error_m_s']:.3f} m/s")
        parts.append(f"{clock(progress.wall_s)} + {clock(progress.remaining_s)} left")
        text = f"{self._title} {bar(share)} {100 * share:3.0f} %  " + "  ".join(parts)
        if self._live:
            sys.stderr.write(f"\r\x1b[2K{text}" + ("\n" if last else ""))
        else:
            sys.stderr.write(text + "\n")
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
_UNITS = {"_rad_s": " rad/s", "_m_s": " m/s", "_rad": " rad", "_m": " m", "_s": " s"}
"""Units by the end of a name; longer ones first."""


def print_scores(result: dict[str, Any], title: str = "") -> None:
    """Scores of an evaluation with their intervals, and those of its parts under their names."""
    for name, score in result.items():
        if not isinstance(score, dict):
            continue
        if "mean" not in score:
            print_scores(score, f"{title}{name}, ")
            continue
        ending = next((ending for ending in _UNITS if name.endswith(ending)), "")
        label = title + name.removesuffix(ending).replace("_", " ")
        interval = f"[{score['low']:.3f}, {score['high']:.3f}]"
        print(f"  {label:<20} {score['mean']:.3f}{_UNITS.get(ending, ''):<7} {interval}")


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
