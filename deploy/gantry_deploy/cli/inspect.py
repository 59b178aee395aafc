"""``gantry inspect``: what a bundle says about itself, for people and as JSON."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.cli.bundles import add_bundle_arguments, open_bundle
from gantry_deploy.cli.command import add_json_option
from gantry_deploy.contract.parts import Acceptance
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.labels import labels_of
from gantry_hardware.errors import GantryError
from gantry_hardware.files.text import LINE_LIMIT, NAME_LIMIT, printable
from gantry_hardware.model.description import robot_description
from gantry_hardware.robots import robot_spec

SUCCESS = ("min_success_rate", "min_perturbed_success_rate")
"""Thresholds of policies with goals; the others have those of following a velocity without falling."""
PERTURBED = "perturbed"
"""Part of a card's record of a check that has a table of its own."""
MOST_ROWS = 200
"""Rows of a table that are shown; the card of a stranger's bundle may hold thousands."""
LEAST_WIDTH = 110
"""Columns that the tables need; a narrower terminal wraps lines, which loses less than cutting them off."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_bundle_arguments(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line asks for."""
    bundle = open_bundle(args)
    result = describe(bundle)
    console = Console(highlight=False)
    console.width = max(console.width, LEAST_WIDTH)
    console.print(render(bundle, result))
    return result


def describe(bundle: Bundle) -> dict[str, Any]:
    """A bundle as plain data; its hashes have been verified by loading it."""
    return {
        "path": str(bundle.path),
        "files": bundle.manifest["files"],
        "hashes": "verified",
        "signature": "verified" if bundle.signature_verified else "not verified" if bundle.is_signed else "none",
        "robot_check": robot_check(bundle.contract),
        "contract": asdict(bundle.contract),
        "observation_size": bundle.contract.observation_size,
        "observation_layout": observation_layout(bundle.contract),
        "golden": {name: list(values.shape) for name, values in bundle.golden.items()},
        "model_bytes": len(bundle.model_bytes),
        "card": bundle.card,
    }


def observation_layout(contract: PolicyContract) -> list[dict[str, Any]]:
    """Position of each term in the actor's input: name and the half-open index range [start, stop)."""
    layout, start = [], 0
    for term in contract.observations:
        stop = start + term.size * term.history
        layout.append({"name": term.name, "start": start, "stop": stop})
        start = stop
    return layout


def robot_check(contract: PolicyContract) -> str:
    """``fits``, or why the contract does not fit the robot as it is installed here."""
    try:
        contract.check_robot(robot_spec(contract.robot))
    except GantryError as error:
        return str(error)
    return "fits"


def sliding_joints(contract: PolicyContract) -> tuple[str, ...]:
    """Names of the joints that slide along an axis; none of a robot that is not installed or has no description."""
    try:
        description = robot_description(robot_spec(contract.robot))
    except GantryError:
        return ()
    if description is None:
        return ()
    places = description.drivers[description.slides]
    return tuple(name for place, name in enumerate(contract.joint_names) if place in places)


def render(bundle: Bundle, result: dict[str, Any]) -> RenderableType:
    """The tables that ``gantry inspect`` prints."""
    contract = bundle.contract
    parts: list[RenderableType] = [_overview(bundle, result)]
    parts += _titled(f"Joints ({len(contract.joint_names)})", _joints(contract))
    if sliding := sliding_joints(contract):
        parts.append(Padding(Text(f"Sliding joints, m for rad and N for Nm: {', '.join(sliding)}"), (0, 0, 0, 2)))
    parts += _titled(f"Observation ({contract.observation_size} numbers)", _observations(contract, result))
    parts += _titled("Action", _action(contract))
    parts += _titled(f"Command ({contract.command.kind})", _commands(contract))
    if contract.gait is not None:
        parts += _titled("Gait", _pairs(asdict(contract.gait), skip=("joint_foot", "joint_gain")))
    if contract.map_window is not None:
        parts += _titled("Map window", _pairs(asdict(contract.map_window)))
    asked, foreign = asdict(contract.acceptance), meaningless_rows(contract)
    parts += _titled("Thresholds of gantry check", _pairs(asked, skip=tuple(name.split(".")[-1] for name in foreign)))
    if contract.trained_for:
        parts += _titled("Trained for", _trained_for(contract))
    parts += _titled("Provenance", _pairs(asdict(contract.provenance)))
    none = Text("none yet: 'gantry check' measures and writes it")
    plain, perturbed = _card_parts(bundle.card or {})
    parts += _titled("Card", _pairs(flatten(plain), skip=foreign) if bundle.card else none)
    if perturbed:
        parts += _titled("Perturbed", _perturbed(perturbed))
    return Group(*parts)


def meaningless_rows(contract: PolicyContract) -> tuple[str, ...]:
    """Rows of a card's record of a check that mean nothing for the policy, with dotted names: thresholds that are
    not set, and conditions that its episodes do not have."""
    from gantry_deploy.evaluation.gate import CARD_KEY
    from gantry_deploy.evaluation.scenario import scenario_class

    scenario = scenario_class(contract)
    goals = scenario.counts_success
    thresholds = [(item.name, getattr(contract.acceptance, item.name)) for item in fields(Acceptance)]
    rows = [f"acceptance.{name}" for name, limit in thresholds if (name in SUCCESS) != goals or limit is None]
    rows += [f"conditions.{name}" for name in scenario.unused]
    return tuple(f"{CARD_KEY}.{row}" for row in rows)


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, with dotted names."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _titled(title: str, content: RenderableType) -> list[RenderableType]:
    return [Text(f"\n{printable(title)}", style="bold"), Padding(content, (0, 0, 0, 2), expand=False)]


def _overview(bundle: Bundle, result: dict[str, Any]) -> Table:
    contract = bundle.contract
    size_kib = len(bundle.model_bytes) / 1024
    fits = result["robot_check"] == "fits"
    return _pairs(
        {
            "bundle": result["path"],
            "robot": f"{contract.robot} ({contract.embodiment}), {contract.rate_hz:g} Hz"
            + (", fits the one installed here" if fits else ""),
            "network": f"{contract.observation_size} -> {contract.action_size}, {size_kib:.0f} KiB of ONNX"
            + (f", recurrent: {', '.join(contract.recurrent)}" if contract.recurrent else ""),
            "network input": "scale * clip(value) of each term below; further normalisation is "
            + contract.normalization,
            "manifest": f"{len(result['files'])} files, every SHA-256 verified; {bundle.signature_text}",
            "golden data": ", ".join(f"{name} {'x'.join(map(str, s))}" for name, s in result["golden"].items()),
            **({} if fits else {"WARNING": result["robot_check"]}),
        }
    )


def _joints(contract: PolicyContract) -> Table:
    columns = {
        "default": ("rad", contract.default_pos_rad),
        "lower": ("rad", contract.joint_lower_rad),
        "upper": ("rad", contract.joint_upper_rad),
        "stiffness": ("Nm/rad", contract.stiffness_nm_rad),
        "damping": ("Nm s/rad", contract.damping_nm_s_rad),
        "effort": ("Nm", contract.effort_limit_nm),
    }
    if contract.action_size == len(contract.joint_names):  # An action that moves an end effector has its own axes.
        columns |= {
            "scale": ("rad/unit", contract.action.scale),
            "offset": ("rad", contract.action.offset_rad),
        }
    table = _table("joint", *columns)
    table.add_row("", *(unit for unit, _ in columns.values()), style="dim")
    for name, *numbers in zip(contract.joint_names, *(values for _, values in columns.values()), strict=True):
        table.add_row(_text(name), *(f"{number:.4g}" for number in numbers))
    return table


def _observations(contract: PolicyContract, result: dict[str, Any]) -> Table:
    table = _table("term", "index", "size", "history", "scale", "clip")
    names_joints = any(term.joints for term in contract.observations)
    for name in ("kind", "frame", "unit", *(("numbers",) if names_joints else ())):
        table.add_column(name)
    for term, place in zip(contract.observations, result["observation_layout"], strict=True):
        clip = "" if term.clip is None else f"±{term.clip:g}"
        index = f"{place['start']}:{place['stop']}"
        numbers = (str(term.size), str(term.history), f"{term.scale:g}", clip)
        words = [_text(word) for word in (term.kind, term.frame, term.unit)]
        if names_joints:
            words.append(_text(", ".join(labels_of(contract, term)) if term.joints else "", LINE_LIMIT))
        table.add_row(_text(term.name), index, *numbers, *words)
    return table


def _action(contract: PolicyContract) -> Table:
    rows = {"kind": contract.action.kind, "clip": f"±{contract.action.clip:g} before the scale"}
    from gantry_deploy.embodiments.registry import embodiment_of

    labels = embodiment_of(contract).action_kind(contract.action.kind).labels(contract)
    return _pairs(rows if labels == contract.joint_names else {**rows, "numbers": ", ".join(labels)})


def _commands(contract: PolicyContract) -> Table:
    command = contract.command
    table = _table("name", "lower", "upper", "max rate")
    for name, lower, upper, rate in zip(command.names, command.lower, command.upper, command.max_rate, strict=True):
        table.add_row(_text(name), f"{lower:g}", f"{upper:g}", f"{rate:g} /s" if rate > 0 else "")
    return table


def _trained_for(contract: PolicyContract) -> Table:
    table = _table("parameter", "lower", "upper")
    table.add_column("joint")
    for item in contract.trained_for[:MOST_ROWS]:
        table.add_row(_text(item.name), f"{item.lower:.4g}", f"{item.upper:.4g}", _text(item.joint or "all"))
    return table


def _card_parts(card: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A card without its record of perturbations, and the results of that by name; empty where it has none."""
    from gantry_deploy.evaluation.gate import CARD_KEY

    check = card.get(CARD_KEY)
    record = check.get(PERTURBED) if isinstance(check, dict) else None
    results = record.get("results") if isinstance(record, dict) else None
    if not isinstance(check, dict) or not isinstance(record, dict) or not isinstance(results, dict):
        return card, {}
    rest = {name: value for name, value in record.items() if name != "results"}
    found = {str(name): item["scores"] for name, item in results.items() if _has_scores(item)}
    return {**card, CARD_KEY: {**check, PERTURBED: rest}}, found


def _has_scores(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("scores"), dict)


def _perturbed(results: dict[str, Any]) -> Table:
    """Means of every score under each perturbation."""
    rows = {
        name: {key: value["mean"] for key, value in scores.items() if isinstance(value, dict) and "mean" in value}
        for name, scores in list(results.items())[:MOST_ROWS]
    }
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    table = _table("perturbation", *map(printable, columns))
    for name, row in rows.items():
        table.add_row(_text(name), *(_text(_value(row.get(key))) for key in columns))
    return table


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _pairs(data: dict[str, Any], skip: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [(key, value) for key, value in data.items() if key not in skip]
    for key, value in rows[:MOST_ROWS]:
        table.add_row(_text(key), _text(_value(value), LINE_LIMIT))
    if len(rows) > MOST_ROWS:
        table.add_row("", f"and {len(rows) - MOST_ROWS} more; --json FILE has all")
    return table


def _text(text: str, limit: int = NAME_LIMIT) -> Text:
    """Text of a bundle as a terminal may get it: without control characters, and brackets are no markup."""
    return Text(printable(text, limit))


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(item) for item in value[:LINE_LIMIT]) or "-"
    return "-" if value in (None, "") else str(value)
