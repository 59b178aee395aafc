"""Published figures about the speed of other simulators for driving; nothing of it is measured here."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gantry_sim.driving.bench.text import table_lines

UNTOLD = "not told with the figure"
"""Hardware that a source does not name beside its figure."""
NOTE = (
    "Published by others, not measured here: other tasks, other hardware, and each counts steps in its own way.\n"
    "No figure below compares with one above."
)
"""Stands over the table."""


@dataclass(frozen=True)
class Peer:
    """One published figure."""

    name: str
    """Of the system."""
    figure: str
    """As published, with its unit."""
    counted: str
    """Counted quantity."""
    hardware: str
    """Hardware of the measurement."""
    source: str
    """Publication."""


PEERS = (
    Peer(
        "Gigaflow",
        "4.4 G transitions/h (1.2 M/s)",
        "agents simulated and learned from, self-play",
        "one node of 8 A100",
        "arXiv 2502.03349",
    ),
    Peer(
        "Gigaflow",
        "7.4 M decisions/s",
        "inference of the policy alone, batches of 2.6 M",
        "one node of 8 A100",
        "arXiv 2502.03349",
    ),
    Peer("GPUDrive", "over 1 M steps/s", "agents simulated", UNTOLD, "arXiv 2408.01584"),
    Peer("GPUDrive", "25 to 50 k steps/s", "agents learned from, SB3", UNTOLD, "its repository"),
    Peer("GPUDrive", "100 to 300 k steps/s", "agents learned from, PufferLib", UNTOLD, "its repository"),
    Peer("PufferDrive 2.0", "300 k steps/s", "agents learned from", "one GPU", "release of December 2025"),
    Peer("Nocturne", "over 2 k steps/s", "steps of the simulator, vectors of what is seen", UNTOLD, "arXiv 2206.09889"),
    Peer("Waymax", "over 1 k steps/s", "steps of the simulator", "8 V100", "a blog's account, not the paper"),
    Peer("Gigapixel", "50 k steps/s", "agents simulated, each with a drawn view", UNTOLD, "arXiv 2606.19641"),
    Peer("MetaDrive 0.4.3", "up to 1 k frames/s", "one car among traffic, one process", UNTOLD, "its README"),
    Peer("highway-env", "1.1 to 14.5 frames/s", "one car among traffic, one process", UNTOLD, "issue rl-agents#73"),
    Peer("f1tenth_gym", "up to 30 x real time", "two small cars with lidar", UNTOLD, "its documentation"),
)
"""Figures, the fastest first among simulators of many cars at once, and simulators of one car last."""


def peer_rows() -> list[dict[str, str]]:
    """The figures as plain data."""
    return [asdict(peer) for peer in PEERS]


def peer_lines() -> list[str]:
    """The figures as a table under :data:`NOTE`."""
    rows = [[peer.name, peer.figure, peer.counted, peer.hardware, peer.source] for peer in PEERS]
    return [*NOTE.splitlines(), *table_lines([["", "published", "counts", "hardware", "source"], *rows])]
