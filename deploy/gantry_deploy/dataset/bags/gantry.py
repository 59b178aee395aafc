"""Mapping of Gantry's own recordings, which say themselves what their topics are."""

from __future__ import annotations

from pathlib import Path

from gantry_deploy.dataset.bags.config import BagCfg, EpisodesCfg, SourceCfg
from gantry_deploy.dataset.bags.messages import BagError
from gantry_deploy.dataset.features import ACTION, JOINT_POSITION_TARGET, STATE
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import RecordingError
from gantry_deploy.recording.reader import read_recording
from gantry_deploy.teleop.operator import TeleopEvent
from gantry_hardware.files.text import path_text

VELOCITY = "observation.velocity"
_TICKS = 3.0
"""Ticks without a policy that part two episodes."""


def gantry_cfg(path: Path) -> BagCfg:
    """The mapping of a recording: joint positions and velocities, and joint targets as they were sent.

    An attempt of a session is an episode, without a session every stretch in which the policy acted; without a policy
    the whole recording is one.

    Raises:
        BagError: If it is no recording of Gantry.
    """
    try:
        recording = read_recording(path)
    except RecordingError as error:
        raise BagError(
            f"{path_text(path)} is no recording of Gantry, so that it needs a mapping (--config); 'gantry data topics' "
            f"shows one to begin with. {error}"
        ) from error
    contract, joints = recording.contract, recording.joint_names
    if contract is not None:
        embodiment_of(contract).require("data from-mcap")
    rate_hz = 50.0 if contract is None else contract.rate_hz
    labels = tuple(f"{name}.pos" for name in joints)
    targets = tuple(f"{name}/position" for name in joints)
    source = SourceCfg("/joint_states", "position", joints, labels, unit="rad")
    episodes = EpisodesCfg()
    features = {
        STATE: (source,),
        VELOCITY: (SourceCfg("/joint_states", "velocity", joints, tuple(f"{name}.vel" for name in joints), "rad/s"),),
        # Named after the joints alone, so that it can be replayed.
        ACTION: (SourceCfg("/joint_command", "position", targets, joints, "rad", JOINT_POSITION_TARGET),),
    }
    if "/policy/action" in recording.topics:
        own = SourceCfg("/policy/action", "data")
        features["complementary_info.policy_output"] = (own,)
        gaps = EpisodesCfg(by="gap", topic="/policy/action", gap_s=_TICKS / rate_hz)
        episodes = _attempts() if "/gantry/event" in recording.topics else gaps
    task = "unnamed task" if contract is None else contract.provenance.task or contract.robot
    return BagCfg(
        round(rate_hz), features, recording.robot or None, task, max_age_s=_TICKS / rate_hz, episodes=episodes
    )


def _attempts() -> EpisodesCfg:
    """Episodes from the events of a session; one that is recorded again is left out."""
    event = "/gantry/event.data={}".format
    return EpisodesCfg(
        by="events",
        start=(event(TeleopEvent.START.value),),
        end=(event(TeleopEvent.TERMINATE.value),),
        success=(event(TeleopEvent.SUCCESS.value),),
        failure=(event(TeleopEvent.FAILURE.value),),
        discard=(event(TeleopEvent.RERECORD.value),),
    )
