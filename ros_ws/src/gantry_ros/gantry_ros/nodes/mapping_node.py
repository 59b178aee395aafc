"""Depth and odometry in, elevation map out: :class:`gantry_mapping.live.LiveMapping` behind topics.

Nothing that arrives ends this node: what cannot be used is refused by one message and counted, what is missing shows in
the diagnostics, and the map's uncertainty grows meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gantry_ros.mapping import mapping_topics
from gantry_ros.mapping.mapping_topics import MappingTopics
from gantry_ros.runtime import lifecycle
from gantry_ros.runtime.host import NodeHost, stop_on_signals, write_json
from gantry_ros.runtime.lifecycle import POLL_S, LifeCycle

NAME = "mapping_node"
PARAMETERS = (lifecycle.PARAMETER, *mapping_topics.PARAMETERS)
"""Every parameter of this node."""


class MappingWork:
    """Work of the node, by the steps of its life cycle: setup and cameras, the mapping, the end of both.

    Args:
        host: Its node.
        values: Values of :data:`PARAMETERS`.
    """

    def __init__(self, host: NodeHost, values: dict[str, Any]) -> None:
        self._host, self._values = host, values
        self._node: MappingTopics | None = None

    def configure(self) -> None:
        """Load the setup and open the node's own cameras.

        Raises:
            GantryError: If parameters, setup, network or bundle are refused.
        """
        self._node = MappingTopics(self._host, self._values)
        cfg = self._node.live.cfg
        size = f"{cfg.map_size_m:g} m at {cfg.map_resolution_m:g} m"
        self._host.node.get_logger().info(f"Mapping {size}, fusion '{cfg.fusion}'.")

    def run(self, leave: threading.Event, begun: Callable[[], None]) -> int:
        """Listen and publish until asked to leave."""
        assert self._node is not None
        kept = self._host.entities()
        self._node.open(self._values)
        begun()
        while not leave.wait(POLL_S) and not self._host.stop.is_set():
            pass
        self._host.destroy_all_but(kept)
        return 0

    def cleanup(self) -> int:
        """Release the cameras and write the statistics; returns 0."""
        node, self._node = self._node, None
        if node is not None:
            node.close()
            if self._values["statistics"]:
                write_json(self._values["statistics"], node.statistics(), "statistics")
        return 0


def main(arguments: list[str]) -> int:
    """Run the node until it is stopped.

    Raises:
        GantryError: If parameters, setup, network or bundle are refused.
    """
    with NodeHost(NAME, arguments) as host, stop_on_signals(host.stop):
        values = host.declare(PARAMETERS)
        return LifeCycle(host, MappingWork(host, values), managed=values["managed"]).run()
