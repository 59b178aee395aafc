"""Episodes of a policy under one perturbation after the other, their table, and the worst of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gantry_deploy.contract.policy_contract import Acceptance, PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.evaluation.gate import Stage
from gantry_deploy.evaluation.metrics import Verdict
from gantry_deploy.evaluation.perturbations.perturbation import Perturbation
from gantry_deploy.evaluation.rollout import run_episodes
from gantry_deploy.evaluation.scenario import Episode, RolloutConfig, scenario_class
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.plugins import load_named

ALL, NONE = "all", "none"
"""Words for every perturbation of an embodiment, and for no perturbation."""
REFERENCE = "nominal"
"""Name of the row without a perturbation, of episodes as long as those under perturbations."""


@dataclass(frozen=True)
class PerturbedResult:
    """Episodes under one perturbation."""

    name: str
    """Name of the perturbation."""
    text: str
    """The perturbation in a sentence."""
    scores: Any
    """Means and rates with intervals, :class:`gantry_deploy.evaluation.scenario.PerturbedScores`."""
    faults: Mapping[str, int]
    """Number of episodes that each kind of fault ended, by code."""


def perturbations_of(contract: PolicyContract, spec: RobotSpec) -> tuple[Perturbation, ...]:
    """Perturbations of a contract's embodiment for a robot; none for one that has none."""
    maker = embodiment_of(contract).perturbations
    return tuple(load_named(maker)(contract, spec)) if maker else ()


def chosen(asked: str, available: Sequence[Perturbation]) -> tuple[Perturbation, ...]:
    """Perturbations that a text names: ``all``, ``none``, or names separated by commas, in that order.

    Raises:
        UnknownNameError: With the near miss.
    """
    if asked == ALL:
        return tuple(available)
    if asked == NONE:
        return ()
    by_name = {item.name: item for item in available}
    names = list(dict.fromkeys(name.strip() for name in asked.split(",")))
    for name in names:
        if name not in by_name:
            raise UnknownNameError("perturbation", name, [*by_name, ALL, NONE])
    return tuple(by_name[name] for name in names)


def perturbed_config(config: RolloutConfig, contract: PolicyContract, episodes: int | None) -> RolloutConfig:
    """Conditions of the episodes under perturbations: those of the nominal ones, but fewer and shorter.

    Args:
        config: Of the nominal ones.
        contract: Of the policy.
        episodes: Number of episodes under each perturbation; None for that of the scenario, and no more than nominal
            ones.
    """
    scenario = scenario_class(contract)
    number = min(scenario.perturbed_episodes, config.episodes) if episodes is None else episodes
    longest_s = config.seconds if scenario.perturbed_seconds is None else scenario.perturbed_seconds
    return replace(config, episodes=number, seconds=min(longest_s, config.seconds))


def run_perturbed(
    runner: PolicyRunner,
    config: RolloutConfig,
    perturbations: Sequence[Perturbation],
    on_result: Callable[[PerturbedResult], None] = lambda result: None,
    on_episode: Callable[[int, Episode], None] | None = None,
) -> list[PerturbedResult]:
    """Run episodes under each perturbation, the same episodes each time.

    Args:
        runner: The policy; its robot is simulated.
        config: Conditions, see :func:`perturbed_config`.
        perturbations: Perturbations that the backend can have, see :meth:`Perturbation.lacking`.
        on_result: Told of each perturbation that is over.
        on_episode: Told of each episode that is over, with its index.

    Raises:
        GantryError: See :func:`gantry_deploy.evaluation.rollout.run_episodes`.
    """
    results = []
    for item in perturbations:
        found = run_episodes(runner, replace(config, perturbation=item), on_episode)
        results.append(PerturbedResult(item.name, item.text, found.scores, found.faults))
        on_result(results[-1])
    return results


def run_reference(
    runner: PolicyRunner, config: RolloutConfig, on_episode: Callable[[int, Episode], None] | None = None
) -> PerturbedResult:
    """Run the same episodes without a perturbation, to compare with.

    Args:
        runner: The policy; its robot is simulated.
        config: Conditions, see :func:`perturbed_config`.
        on_episode: Told of each episode that is over, with its index.

    Raises:
        GantryError: See :func:`gantry_deploy.evaluation.rollout.run_episodes`.
    """
    found = run_episodes(runner, config, on_episode)
    return PerturbedResult(REFERENCE, "no perturbation", found.scores, found.faults)


def worst(results: Sequence[PerturbedResult]) -> PerturbedResult | None:
    """The worst result by :attr:`~gantry_deploy.evaluation.scenario.PerturbedScores.severity`; None without any."""
    return max(results, key=lambda result: result.scores.severity, default=None)


def judge_perturbed(acceptance: Acceptance, results: Sequence[PerturbedResult]) -> list[Stage]:
    """Each threshold on perturbed scores against the perturbation that misses it by most, or is the closest to it."""
    found: dict[str, tuple[PerturbedResult, Verdict]] = {}
    for result in results:
        for verdict in result.scores.perturbed_verdicts(acceptance):
            if verdict.name not in found or _margin(verdict) < _margin(found[verdict.name][1]):
                found[verdict.name] = (result, verdict)
    return [
        Stage(f"perturbed {name}", verdict.passed, f"{result.name}: {verdict.text}", verdict.score.mean, verdict.limit)
        for name, (result, verdict) in found.items()
    ]


def table(
    results: Sequence[PerturbedResult], config: RolloutConfig, reference: PerturbedResult | None = None
) -> dict[str, Any]:
    """Results as plain data and dataclasses, for reports and cards: each perturbation, the worst, conditions.

    Args:
        results: Of every perturbation.
        config: Conditions.
        reference: The same episodes without a perturbation; None where the nominal ones are as long.
    """
    last = worst(results)
    rows = results if reference is None else (reference, *results)
    return {
        "worst": None if last is None else last.name,
        "episodes": config.episodes,
        "seconds": config.seconds,
        "results": {
            result.name: {"text": result.text, "scores": result.scores, "faults": result.faults} for result in rows
        },
    }


def _margin(verdict: Verdict) -> float:
    """Distance of a verdict's mean from its limit on the good side; NaN counts as the worst."""
    margin = (verdict.score.mean - verdict.limit) * (1.0 if verdict.at_least else -1.0)
    return margin if margin == margin else float("-inf")
