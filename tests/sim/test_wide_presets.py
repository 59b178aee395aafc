"""Presets on machines that differ more: their contracts hold what `gantry check` perturbs."""

from __future__ import annotations

import pytest

from gantry_deploy.contract.parts import TrainedRange
from gantry_deploy.evaluation.perturbations.suite import perturbations_of
from gantry_hardware.robots import robot_spec
from gantry_sim.tasks.registry import find_task

NOT_TOLD = {"encoder_offset_rad", "effort_limit_nm"}
"""Parameters that no contract of an arm has a range of."""
PER_JOINT = {"coulomb_friction_nm", "viscous_friction_nm_s_rad"}
"""Parameters that the training of arms draws once for all joints, below what strong joints are checked with."""


def ranges(task: str, preset: str) -> dict[tuple[str, str], TrainedRange]:
    """Ranges of a preset's contract by joint, or nothing, and parameter."""
    found = find_task(task)
    contract = found.contract(found.presets[preset]().env)
    return {(item.joint, item.name): item for item in contract.trained_for}


@pytest.mark.parametrize(
    ("task", "preset", "left_out"),
    [
        ("drive-race", "cpu-wide", set()),
        ("drive-traffic", "cpu-wide", set()),
        ("yam-pick-place", "resfit-wide", NOT_TOLD | PER_JOINT),
        ("yam-insert", "rlpd-wide", NOT_TOLD | PER_JOINT),
    ],
)
def test_wide_ranges_hold_the_perturbations_of_the_check(task: str, preset: str, left_out: set[str]) -> None:
    found = find_task(task)
    contract = found.contract(found.presets[preset]().env)
    spec, told = robot_spec(found.robot), ranges(task, preset)
    checked = 0
    for perturbation in perturbations_of(contract, spec):
        values = [("", name, span) for name, span in perturbation.whole.items()]
        values += [(joint, name, span) for joint, some in perturbation.joints.items() for name, span in some.items()]
        values += [("", name, (number, number)) for name, number in perturbation.options.items() if name != "model"]
        for joint, name, (low, high) in values:
            if name in left_out:
                continue
            # Pads grip with a friction of 1: a share of it is the friction itself.
            name = {"object_friction_share": "friction"}.get(name, name)
            found_range = told.get((joint, name)) or told[("", name)]
            assert found_range.lower <= low <= high <= found_range.upper, (perturbation.name, joint, name)
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    ("task", "usual", "wide"), [("drive-race", "cpu", "cpu-wide"), ("yam-lift", "rlpd", "rlpd-wide")]
)
def test_a_wide_preset_has_no_range_that_is_narrower(task: str, usual: str, wide: str) -> None:
    wider = ranges(task, wide)
    for key, narrow in ranges(task, usual).items():
        assert wider[key].lower <= narrow.lower <= narrow.upper <= wider[key].upper, key
    found = find_task(task)
    assert found.presets[usual]().learner == found.presets[wide]().learner
