"""Options for all that a LEAPP bundle leaves open: the robot, gains, a pose to begin in, limits of commands."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from gantry_deploy.cli.command import UsageError, choose, parse_numbers
from gantry_hardware.robots import robot_names

OPTIONS = ("robot", "stiffness", "damping", "default_pose", "command_limits")
"""Names of the options, with underscores."""


@dataclass(frozen=True)
class LeappSettings:
    """Facts that a LEAPP bundle does not hold, or holds wrongly; arrays have one number for all joints, or one per
    joint in the robot's order."""

    robot: str | None = None
    """Robot to run on; None for the one that the bundle names, which only bundles of Gantry do."""
    stiffness_nm_rad: tuple[float, ...] | None = None
    """Gains in place of the bundle's; None for those."""
    damping_nm_s_rad: tuple[float, ...] | None = None
    """Likewise."""
    default_pos_rad: tuple[float, ...] | None = None
    """Pose in which the policy starts; None for the bundle's, or else the robot's."""
    command_limits: tuple[float, ...] | None = None
    """Largest forward and lateral velocity and yaw rate either way, m/s and rad/s; None for the bundle's, or else 1."""


def add_leapp_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options, as a group of their own."""
    group = parser.add_argument_group("for a LEAPP folder")
    group.add_argument("--robot", metavar="NAME", help=f"robot that the policy drives: {', '.join(robot_names())}")
    group.add_argument(
        "--stiffness",
        type=parse_numbers,
        metavar="KP",
        help="gains in place of the folder's, Nm/rad: one number, or one per joint in the robot's order",
    )
    group.add_argument("--damping", type=parse_numbers, metavar="KD", help="the same, Nm s/rad")
    group.add_argument(
        "--default-pose",
        type=parse_numbers,
        metavar="RAD",
        help="pose in which the policy starts, one number per joint; the robot's own if not given",
    )
    group.add_argument(
        "--command-limits",
        type=parse_numbers,
        metavar="X,Y,YAW",
        help="largest velocities that the policy was trained for, m/s and rad/s; 1,1,1 if not given",
    )


def leapp_settings(args: argparse.Namespace) -> LeappSettings:
    """The settings of a command line.

    Raises:
        UnknownNameError: If there is no such robot.
    """
    if args.robot is not None:
        choose("robot", args.robot, robot_names())
    return LeappSettings(args.robot, args.stiffness, args.damping, args.default_pose, args.command_limits)


def refuse_leapp_options(args: argparse.Namespace) -> None:
    """Refuse the options where the policy is no LEAPP folder; a command without them has none to refuse.

    Raises:
        UsageError: With the option.
    """
    for name in OPTIONS:
        if getattr(args, name, None) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option}: {args.bundle} is no LEAPP folder; its contract says this. Leave it out.")
