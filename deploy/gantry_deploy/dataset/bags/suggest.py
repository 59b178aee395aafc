"""Topics of a bag with types and rates, and a mapping to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gantry_deploy.dataset.bags.bag import Bag
from gantry_deploy.dataset.bags.definitions import Decoders
from gantry_deploy.dataset.bags.pictures import TYPES
from gantry_deploy.dataset.features import ACTION, IMAGES, STATE

_STATES = ("sensor_msgs/msg/JointState",)
_COMMANDS = (
    "trajectory_msgs/msg/JointTrajectory",
    "std_msgs/msg/Float64MultiArray",
    "std_msgs/msg/Float32MultiArray",
    "geometry_msgs/msg/TwistStamped",
    "geometry_msgs/msg/Twist",
    "control_msgs/msg/JointJog",
    "sensor_msgs/msg/Joy",
)
_OTHER_STATES = ("geometry_msgs/msg/PoseStamped", "nav_msgs/msg/Odometry", "sensor_msgs/msg/Imu")
_GENERIC = ("image", "image_raw", "image_rect", "image_color", "color", "compressed", "rgb", "camera")
MOST_FPS, USUAL_FPS = 30, 10


@dataclass(frozen=True)
class TopicFacts:
    """Facts about a topic."""

    name: str
    """Name."""
    type: str
    """Message type."""
    count: int
    """Messages."""
    rate_hz: float
    """Messages per second, by the median time between two of them; 0 for fewer than two."""
    obstacle: str = ""
    """Reason why they cannot be read; empty if they can."""


def topic_facts(path: Path) -> tuple[list[TopicFacts], list[str]]:
    """Topics of a bag in the order of their names, and what was noticed in words.

    Raises:
        BagError: If it cannot be read.
    """
    bag = Bag(path)
    topics = bag.topics()
    times: dict[str, list[int]] = {name: [] for name in topics}
    for message in bag.messages():
        times.setdefault(message.topic, []).append(message.log_ns)
    decoders = Decoders()
    facts = []
    for name, topic in sorted(topics.items()):
        steps = np.diff(np.sort(np.array(times[name], np.int64)))
        median = float(np.median(steps)) if len(steps) else 0.0
        rate = 1e9 / median if median > 0 else 0.0
        facts.append(TopicFacts(name, topic.type, len(times[name]), rate, decoders.obstacle(topic)))
    return facts, list(bag.notes)


def suggested(facts: list[TopicFacts]) -> dict[str, Any]:
    """A mapping that would fit the topics, as plain data; empty if no topic has states, pictures or commands."""
    usable = [item for item in facts if item.count and not item.obstacle]
    features: dict[str, Any] = {}
    if state := _most(usable, _STATES, avoid=("command", "cmd", "target", "leader")):
        features[STATE] = {"topic": state.name, "field": "position", "unit": "rad"}
    elif other := _first_of(usable, _OTHER_STATES):
        features[STATE] = {"topic": other.name}
    images = [item for item in usable if item.type in TYPES and "depth" not in item.name.lower()]
    packed = {item.name.rsplit("/compressed", 1)[0] for item in images if item.name.endswith("/compressed")}
    for item in images:
        if item.name in packed:
            continue  # The same pictures, compressed.
        features[f"{IMAGES}{_camera_name(item.name, features)}"] = {"topic": item.name}
    taken = {entry["topic"] for entry in features.values()}
    rest = [item for item in usable if item.name not in taken]
    named = [item for item in rest if item.type in _STATES]
    command = (named or [None])[0] or _first_of(rest, _COMMANDS)
    if command is not None:
        features[ACTION] = {"topic": command.name} | ({"field": "position"} if command.type in _STATES else {})
    elif state is not None:
        features[ACTION] = {"topic": state.name, "field": "position", "unit": "rad"}
    if not features:
        return {}
    rates = [item.rate_hz for item in images if item.rate_hz > 0] or [
        item.rate_hz for item in usable if item.name in taken
    ]
    fps = max(1, min(MOST_FPS, round(min(rates, default=USUAL_FPS))))
    if command is None and state is not None:
        features[ACTION]["offset_s"] = round(1.0 / fps, 6)
    return {
        "fps": fps,
        "robot": "my_robot",
        "task": "what is to be done",
        "features": features,
        "episodes": {"by": "bag"},
    }


def _most(facts: list[TopicFacts], types: tuple[str, ...], avoid: tuple[str, ...]) -> TopicFacts | None:
    """The topic of a type with most messages, one that is no command before others."""
    found = [item for item in facts if item.type in types]
    plain = [item for item in found if not any(word in item.name.lower() for word in avoid)]
    return max(plain or found, key=lambda item: item.count, default=None)


def _first_of(facts: list[TopicFacts], types: tuple[str, ...]) -> TopicFacts | None:
    """The topic of the first type of a list that there is one of."""
    for kind in types:
        if found := [item for item in facts if item.type == kind]:
            return max(found, key=lambda item: item.count)
    return None


def _camera_name(topic: str, taken: dict[str, Any]) -> str:
    words = [part for part in topic.strip("/").split("/") if part not in _GENERIC] or ["camera"]
    name = words[-1] if f"{IMAGES}{words[-1]}" not in taken else "_".join(words)
    number, free = 2, name
    while f"{IMAGES}{free}" in taken:
        free, number = f"{name}_{number}", number + 1
    return free
