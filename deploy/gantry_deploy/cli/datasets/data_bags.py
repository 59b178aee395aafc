"""``gantry data topics`` and ``gantry data from-mcap``: bags of ROS 2 as datasets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from gantry_deploy.cli.command import UsageError, add_json_option, counted, output_file
from gantry_hardware.files.text import printable
from gantry_hardware.files.whole_files import write_whole

_TOPICS_TEXT = (
    "Show the topics of a bag (a rosbag2 folder, an .mcap or a .db3 file) with types, counts and rates, and a mapping "
    "to begin with, as YAML for 'gantry data from-mcap --config'."
)
_FROM_TEXT = (
    "Make a LeRobot v3 dataset of bags of ROS 2: rosbag2 folders (MCAP or SQLite), .mcap or .db3 files, each an "
    "episode unless the mapping says otherwise. Messages are sampled at the dataset's rate: the last one at or "
    "before a frame. A bag ends at its first damage. Recordings of Gantry need no mapping. See docs/convert-bags.md."
)
_EPILOG = (
    "examples:\n"
    "  gantry data topics bags/first --write map.yaml\n"
    "  gantry data from-mcap bags/first bags/second --config map.yaml --output demos/pick"
)


def add_arguments(sub: Any) -> None:
    """Offer the sub-commands.

    Args:
        sub: The sub-parsers of ``gantry data``.
    """
    topics = sub.add_parser("topics", help="topics of a bag, and a mapping to begin with", description=_TOPICS_TEXT)
    topics.add_argument("bag", metavar="BAG", type=Path, help="folder of rosbag2, or a file of it")
    topics.add_argument("--write", metavar="FILE", type=output_file(".yaml"), help="write the mapping to this file")
    convert = sub.add_parser("from-mcap", help="bags into a dataset", description=_FROM_TEXT, epilog=_EPILOG)
    convert.add_argument("bags", metavar="BAG", type=Path, nargs="+", help="folders of rosbag2, or files of it")
    convert.add_argument("--output", metavar="FOLDER", type=Path, required=True, help="folder of the new dataset")
    convert.add_argument("--config", metavar="FILE", type=Path, help="the mapping, YAML")
    convert.add_argument("--fps", type=int, metavar="HZ", help="frames per second, in place of the mapping's")
    convert.add_argument("--task", metavar="TEXT", help="task in words, in place of the mapping's")
    convert.add_argument("--robot", metavar="NAME", help="name of the robot, in place of the mapping's")
    for own, run in ((topics, _topics), (convert, _convert)):
        add_json_option(own)
        own.set_defaults(run_data=run)


def _topics(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_deploy.dataset.bags.suggest import suggested, topic_facts

    facts, notes = topic_facts(args.bag)
    width = max(len(printable(item.name)) for item in facts)
    kind_width = max(len(printable(item.type)) for item in facts)
    for item in facts:
        rate = f"{item.rate_hz:8.1f} Hz" if item.rate_hz else " " * 11
        print(
            f"# {printable(item.name):<{width}}  {printable(item.type):<{kind_width}} {item.count:8d} {rate}".rstrip()
        )
        if item.obstacle:
            print(f"#   {printable(item.obstacle, 300)}")
    for note in notes:
        print(f"# note: {printable(note, 300)}")
    mapping = suggested(facts)
    if mapping:
        text = yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True)
        print(text, end="")
        if args.write is not None:
            write_whole(args.write, text.encode())
    else:
        print("# no topic holds joint states, pictures or commands; write the features yourself")
    return {"topics": [vars(item) for item in facts], "notes": notes, "mapping": mapping}


def _convert(args: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import replace

    from gantry_deploy.dataset.bags.config import read_bag_cfg
    from gantry_deploy.dataset.bags.convert import convert_bags
    from gantry_deploy.dataset.bags.gantry import gantry_cfg

    cfg = gantry_cfg(args.bags[0]) if args.config is None else read_bag_cfg(args.config)
    given = {name: getattr(args, name) for name in ("fps", "task", "robot") if getattr(args, name) is not None}
    if not args.task and args.task is not None:
        raise UsageError("--task is empty.")
    done = convert_bags(args.bags, args.output, replace(cfg, **given))
    for note in done.notes:
        print(f"note: {printable(note, 400)}")
    print(f"{done.folder}: {counted(done.episodes, 'episode')}, {counted(done.frames, 'frame')}")
    return vars(done)
