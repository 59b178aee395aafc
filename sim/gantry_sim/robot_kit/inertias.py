"""Masses and inertias that no body can have, found before MuJoCo refuses the model for the first of them."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_sim.robot_kit.findings import Finding, Level

SMALLEST = 1e-10
"""Below this, kg or kg m^2, MuJoCo refuses a moving body, and no part of a robot is that light."""
TRIANGLE_SLACK = 1e-6
"""Share by which the largest principal moment may exceed the sum of the others: rounded numbers of thin bodies do."""
LARGEST_RADIUS_M = 1.5
"""Radius of gyration beyond which an inertia is absurd for one part of a robot: it would be three metres across."""
LARGEST_MASS_KG = 500.0
"""Mass beyond which one part of a robot is absurd."""

FloatArray = NDArray[np.float64]


def check_inertias(model: mujoco.MjSpec) -> list[Finding]:
    """Judge what the model itself says of masses and inertias, and put sound numbers in the place of impossible ones,
    so that the remaining checks can go on.

    Args:
        model: Not compiled; changed in place.
    """
    findings = []
    for body in model.bodies:
        if body.name == "world" or not body.explicitinertial:
            continue
        found = _judge(body)
        findings += found
        if any(finding.level is Level.FAIL for finding in found):
            body.mass = max(abs(float(body.mass)), 0.1)
            body.fullinertia = [np.nan] * 6
            body.inertia = [1e-3] * 3
    return findings


def principal_moments_kg_m2(body: mujoco.MjsBody) -> FloatArray:
    """Principal moments of inertia (3,), kg m^2, ascending, as the model says them."""
    full = np.asarray(body.fullinertia, dtype=np.float64)
    if np.isnan(full[0]):
        return np.sort(np.asarray(body.inertia, dtype=np.float64))
    xx, yy, zz, xy, xz, yz = full
    return np.linalg.eigvalsh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))


def _judge(body: mujoco.MjsBody) -> list[Finding]:
    mass, (low, middle, high) = float(body.mass), principal_moments_kg_m2(body)
    moments = f"{low:.4g}, {middle:.4g}, {high:.4g} kg m^2"
    if mass == 0.0 and high == 0.0 and not body.joints:
        return []  # A frame that is fixed to its parent.
    if not np.isfinite([mass, low, high]).all():
        return [
            _fail("mass", f"'{body.name}' has {mass} kg and {moments}; expected finite numbers. Correct the model.")
        ]
    if mass < SMALLEST:
        return [_fail("mass", f"'{body.name}' has {mass:g} kg; expected more than zero. Correct its inertial.")]
    if low < SMALLEST:
        return [
            _fail(
                "inertia",
                f"'{body.name}' has the principal moments {moments}; expected all greater than zero. Take them from "
                "CAD, or leave its inertial out, so that MuJoCo derives it from its shapes.",
            )
        ]
    if high > (low + middle) * (1.0 + TRIANGLE_SLACK):
        return [
            _fail(
                "inertia",
                f"'{body.name}' has the principal moments {moments}: {high:.4g} > {low:.4g} + {middle:.4g}, which no "
                f"body has. Take them from CAD; often axes or units were mixed.",
            )
        ]
    findings = []
    if mass > LARGEST_MASS_KG:
        findings.append(_absurd("mass", f"'{body.name}' has {mass:g} kg; expected less than {LARGEST_MASS_KG:g} kg."))
    radius = float(np.sqrt(high / mass))
    if radius > LARGEST_RADIUS_M:
        text = f"'{body.name}' has {moments} at {mass:g} kg, as a ring of {radius:.3g} m radius"
        findings.append(_absurd("inertia", f"{text}; expected less than {LARGEST_RADIUS_M:g} m."))
    return findings


def _fail(check: str, text: str) -> Finding:
    return Finding(Level.FAIL, check, text)


def _absurd(check: str, text: str) -> Finding:
    return Finding(Level.OPEN, check, text + " Check the units (kg, m).")
