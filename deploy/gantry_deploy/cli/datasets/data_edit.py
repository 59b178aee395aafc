"""``gantry data merge``, ``split``, ``select``, ``relabel``: new datasets of other datasets, which stay as they are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.cli.command import UsageError, add_json_option, choose, counted

if TYPE_CHECKING:
    from gantry_deploy.dataset.edit.arrange import Written

_MERGE_TEXT = (
    "Write the episodes of several datasets, one after the other, into a new one. Rate, robot and features must agree; "
    "differences are shown. Videos are copied as they are encoded. The datasets stay as they are."
)
_SPLIT_TEXT = (
    "Split a dataset into parts: PREFIX-NAME for each part. By share (drawn from a seed), by lists of episodes, by "
    "outcome, by the share of a person (alone, corrected, person), or by task."
)
_SELECT_TEXT = "Write some episodes, or some features, of a dataset into a new one. Conditions hold together."
_RELABEL_TEXT = (
    "Write a dataset with other labels: tasks, outcome, rewards, ends, corrections; delete episodes, trim their ends. "
    "Labels of single episodes come from a YAML file (--labels): task, success, reward, start, stop, person, delete."
)


def add_arguments(sub: Any) -> None:
    """Offer the sub-commands.

    Args:
        sub: The sub-parsers of ``gantry data``.
    """
    merge = sub.add_parser("merge", help="several datasets into one", description=_MERGE_TEXT)
    merge.add_argument("folders", metavar="FOLDER", type=Path, nargs="+", help="folders of the datasets")
    merge.add_argument("--common", action="store_true", help="leave out features that some of them lack")
    split = sub.add_parser("split", help="one dataset into several", description=_SPLIT_TEXT, epilog=_SPLIT_EPILOG)
    _split_arguments(split)
    select = sub.add_parser("select", help="some episodes or features of it", description=_SELECT_TEXT)
    _select_arguments(select)
    relabel = sub.add_parser("relabel", help="the same with other labels", description=_RELABEL_TEXT)
    _relabel_arguments(relabel)
    for own in (merge, select, relabel):
        own.add_argument("--output", metavar="FOLDER", type=Path, required=True, help="folder of the new dataset")
    for own, run in ((merge, _merge), (split, _split), (select, _select), (relabel, _relabel)):
        add_json_option(own)
        own.set_defaults(run_data=run)


_SPLIT_EPILOG = (
    "examples:\n"
    "  gantry data split demos/lift --output-prefix demos/lift --share train=0.8 --share val=0.2\n"
    "  gantry data split sessions/first --output-prefix sessions/first --by actor"
)


def _split_arguments(split: argparse.ArgumentParser) -> None:
    split.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the dataset")
    split.add_argument("--output-prefix", metavar="PATH", required=True, help="PATH-NAME is the folder of a part")
    how = split.add_mutually_exclusive_group(required=True)
    how.add_argument("--share", metavar="NAME=SHARE", action="append", default=[], help="a part with this share")
    how.add_argument("--episodes", metavar="NAME=0-3,7", action="append", default=[], help="a part of these episodes")
    how.add_argument("--by", metavar="WHAT", choices=("success", "actor", "task"), help="success, actor or task")
    split.add_argument("--seed", type=int, default=0, metavar="N", help="draws the episodes of shares")
    split.add_argument("--in-order", action="store_true", help="take shares in the order of the episodes")


def _select_arguments(select: argparse.ArgumentParser) -> None:
    select.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the dataset")
    select.add_argument("--episodes", default="", metavar="0-3,7", help="numbers and ranges")
    select.add_argument("--success", choices=("yes", "no"), metavar="YES_NO", help="outcome: yes or no")
    select.add_argument("--actor", metavar="WHAT", help="share of a person: alone, corrected or person")
    select.add_argument("--task", default="", metavar="TEXT", help="task, in the words of the dataset")
    select.add_argument("--feature", action="append", default=[], metavar="NAME", help="keep only this one; repeatable")
    select.add_argument("--drop", action="append", default=[], metavar="NAME", help="leave out this one; repeatable")


def _relabel_arguments(relabel: argparse.ArgumentParser) -> None:
    relabel.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the dataset")
    relabel.add_argument("--labels", metavar="FILE", type=Path, help="YAML with labels of single episodes")
    relabel.add_argument("--task", metavar="TEXT", help="task of every episode")
    relabel.add_argument(
        "--replace-task", metavar="OLD=NEW", action="append", default=[], help="another text of a task; repeatable"
    )
    relabel.add_argument(
        "--reward", metavar="RULE", help="sparse: 1 in the first frame that succeeds; time: -1 in every frame before it"
    )
    relabel.add_argument("--success", metavar="0-3,7", default="", help="episodes that succeeded")
    relabel.add_argument("--failure", metavar="0-3,7", default="", help="episodes that did not")
    relabel.add_argument("--delete", metavar="0-3,7", default="", help="episodes to leave out")
    relabel.add_argument("--person", metavar="0-3,7", default="", help="episodes in which a person acted all the time")
    relabel.add_argument("--trim-start-s", type=float, default=0.0, metavar="S", help="cut off every beginning")
    relabel.add_argument("--trim-end-s", type=float, default=0.0, metavar="S", help="cut off every end")
    relabel.add_argument("--recompute-ends", action="store_true", help="set next.done and next.truncated anew")


def _merge(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_deploy.dataset.edit.arrange import merge_datasets

    return _told([merge_datasets(args.folders, args.output, common=args.common)])


def _split(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_deploy.dataset import Dataset
    from gantry_deploy.dataset.edit.arrange import parts_by, shares_of, split_dataset
    from gantry_deploy.dataset.edit.selection import episode_numbers

    dataset = Dataset(args.folder)
    if args.by:
        parts = parts_by(dataset, args.by)
    elif args.share:
        shares = {name: _number(text, "--share") for name, text in _pairs(args.share, "--share").items()}
        parts = shares_of(dataset.num_episodes, shares, None if args.in_order else args.seed)
    else:
        given = _pairs(args.episodes, "--episodes")
        parts = {name: episode_numbers(text, dataset.num_episodes) for name, text in given.items()}
    for name in parts:
        if "/" in name:
            raise UsageError(f"The name of a part is '{name}', expected one without '/'.")
    return _told(
        split_dataset(args.folder, {Path(f"{args.output_prefix}-{name}"): part for name, part in parts.items()})
    )


def _select(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_deploy.dataset import Dataset
    from gantry_deploy.dataset.edit.arrange import select_episodes
    from gantry_deploy.dataset.edit.selection import Acting, Selection

    acting = (
        None if args.actor is None else Acting(choose("share of a person", args.actor, [item.value for item in Acting]))
    )
    success = None if args.success is None else args.success == "yes"
    chosen = Selection(args.episodes, success, acting, args.task).of(Dataset(args.folder))
    return _told([select_episodes(args.folder, args.output, chosen, args.feature, args.drop)])


def _relabel(args: argparse.Namespace) -> dict[str, Any]:
    from gantry_deploy.dataset.edit.relabel import Relabel, RewardRule, read_labels, relabel_dataset

    if args.trim_start_s < 0 or args.trim_end_s < 0:
        raise UsageError("--trim-start-s and --trim-end-s are times of 0 s or more.")
    labels = {} if args.labels is None else read_labels(args.labels)
    rule = None
    if args.reward is not None:
        rule = RewardRule(choose("rule for rewards", args.reward, [item.value for item in RewardRule]))
    changes = Relabel(
        task=args.task,
        tasks=_pairs(args.replace_task, "--replace-task"),
        reward=rule,
        trim_start_s=args.trim_start_s,
        trim_end_s=args.trim_end_s,
        recompute_ends=args.recompute_ends,
        episodes=_with_lists(args, labels),
    )
    return _told([relabel_dataset(args.folder, args.output, changes)])


def _with_lists(args: argparse.Namespace, labels: dict[int, Any]) -> dict[int, Any]:
    """Labels of single episodes with what the lists on the command line say of them."""
    from dataclasses import replace

    from gantry_deploy.dataset import Dataset
    from gantry_deploy.dataset.edit.relabel import EpisodeLabels
    from gantry_deploy.dataset.edit.selection import episode_numbers

    dataset, labels = Dataset(args.folder), dict(labels)
    for text, field, value in (
        (args.success, "success", True),
        (args.failure, "success", False),
        (args.delete, "delete", True),
        (args.person, "person", None),
    ):
        for number in episode_numbers(text, dataset.num_episodes) if text else ():
            own = ((0, dataset.episodes[number].length),) if field == "person" else value
            labels[number] = replace(labels.get(number, EpisodeLabels()), **{field: own})
    return labels


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Texts of the form NAME=VALUE, each name once."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option}: '{text}' is not of the form NAME=VALUE.")
        if name in pairs:
            raise UsageError(f"{option}: '{name}' is given twice.")
        pairs[name] = value
    return pairs


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"{option}: '{text}' is no number.") from error


def _told(written: Sequence[Written]) -> dict[str, Any]:
    """Print what was written; returns it as plain data."""
    for item in written:
        again = f", {counted(item.encoded, 'video')} encoded again" if item.encoded else ""
        print(f"{item.folder}: {counted(item.episodes, 'episode')}, {counted(item.frames, 'frame')}{again}")
    return {"written": [vars(item) for item in written]}
