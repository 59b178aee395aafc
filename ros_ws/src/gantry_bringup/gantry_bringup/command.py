"""``gantry launch`` as ``gantry --help`` lists it; what it needs is imported when it is used."""

from __future__ import annotations

from gantry_deploy.cli.command import Command, later

COMMAND = Command(
    name="launch",
    help="start a policy and a robot as ROS 2 nodes",
    add_arguments=later("gantry_bringup.launch_command:add_arguments"),
    run=later("gantry_bringup.launch_command:run"),
    description="Start the nodes of a launch description as processes, show their output, and stop all when one ends.",
)
"""Registered in the entry-point group ``gantry.commands``."""
