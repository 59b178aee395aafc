"""A correction session's facts as values of diagnostics."""

from __future__ import annotations

from gantry_deploy.session.snapshot import SessionSnapshot


def session_values(seen: SessionSnapshot) -> dict[str, object]:
    """Values by name; what is not known is empty."""
    rates = {"success rate": seen.success_rate, "share of steps by the person": seen.intervention_rate}
    return {
        "state": seen.state,
        "actor": seen.actor,
        "mode": seen.mode,
        "fault": seen.fault,
        "possible requests": ", ".join(seen.possible),
        "device": seen.device,
        "attempt": seen.episode,
        "step": seen.step,
        "attempts": seen.attempts,
        "successes": seen.successes,
        "successes alone": seen.successes_alone,
        **{name: "" if value is None else f"{value:.3f}" for name, value in rates.items()},
        "person s": f"{seen.person_s:.2f}",
        "advice": seen.advice,
        "weights version": seen.parameters_version,
        "weights sha256": seen.parameters_sha256,
        "learner connected": seen.learner.connected,
        "learner updates": seen.learner.updates,
        "learner transitions": seen.learner.transitions,
        "learner corrections": seen.learner.corrections,
        "steps not acknowledged": seen.learner.waiting,
        "learner": seen.learner.text,
        "last event": seen.log[-1] if seen.log else "",
    }
