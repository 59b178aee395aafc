"""Commands of releases and keys as ``gantry --help`` lists them; what each needs is imported when it is used."""

from __future__ import annotations

from gantry_deploy.cli.command import Command, later

FLASH = Command(
    name="flash",
    help="put a bundle onto a robot over SSH, watched and with a way back",
    add_arguments=later("gantry_deploy.cli.flash.flash:add_arguments"),
    run=later("gantry_deploy.cli.flash.flash:run"),
    description=(
        "Copy a release (bundle, configuration, runtime) to a robot's computer, verify and test it there, and switch "
        "to it in one step. The robot watches the first run and returns to the last good release by itself. Exit code "
        "0 if the release is good or waits for its first run, 1 if the robot returned from it, 2 if it was refused."
    ),
    epilog=(
        "examples:\n"
        "  gantry flash --setup robot@192.168.123.18 --robot go2 --backend ros\n"
        "  gantry flash runs/walk/bundle robot@192.168.123.18 --key lab\n"
        "  gantry flash walk.zip robot@192.168.123.18 --config site.yaml --key lab --dry-run\n"
        "  gantry flash --list robot@192.168.123.18\n"
        "  gantry flash --rollback robot@192.168.123.18"
    ),
)

ONBOARD = Command(
    name="onboard",
    help="what runs on a robot's computer: the service that runs releases, and its tools",
    add_arguments=later("gantry_deploy.cli.flash.onboard:add_arguments"),
    run=later("gantry_deploy.cli.flash.onboard:run"),
    description="Commands for a robot's own computer; 'gantry flash' calls most of them.",
    epilog=(
        "examples:\n  gantry onboard setup --robot go2 --backend ros\n  gantry onboard service --home ~/gantry-robot"
    ),
)

KEYS = Command(
    name="keys",
    help="keys that sign bundles and releases, and the keys that a robot trusts",
    add_arguments=later("gantry_deploy.cli.flash.keys:add_arguments"),
    run=later("gantry_deploy.cli.flash.keys:run"),
    description="Make a key for signing, and say which keys a robot trusts, in which role and until when.",
    epilog=(
        "examples:\n"
        "  gantry keys new lab\n"
        "  gantry keys trust lab --role development --host robot@192.168.123.18\n"
        "  gantry keys revoke lab --host robot@192.168.123.18"
    ),
)

SIGN = Command(
    name="sign",
    help="sign a bundle",
    add_arguments=later("gantry_deploy.cli.flash.sign:add_arguments"),
    run=later("gantry_deploy.cli.flash.sign:run"),
    description="Sign a bundle as it is. A card that 'gantry check' writes later needs a new signature.",
    epilog="example:\n  gantry sign runs/walk/bundle --key lab",
)
