"""Links to names that a module has imported from where they are defined."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hardware", "mapping", "deploy", "policies", "sim", "ros_ws/src/gantry_ros", "ros_ws/src/gantry_bringup")


def definition_of(name: str) -> str:
    """The dotted name under which a class or constant is defined, by following imports; ``name`` itself if none is.

    Args:
        name: Dotted name, module and member, for example ``gantry_deploy.control.loop.TickReport``.
    """
    seen = {name}
    while True:
        module, _, member = name.rpartition(".")
        source = _imports(module).get(member)
        if source is None or source in seen:
            return name
        seen.add(source)
        name = source


@cache
def _imports(module: str) -> dict[str, str]:
    """Names that a module imports from others, each with its full name there."""
    path = _file(module)
    if path is None:
        return {}
    return {
        item.asname or item.name: f"{node.module}.{item.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for item in node.names
    }


def _file(module: str) -> Path | None:
    stem = module.replace(".", "/")
    places = (ROOT / folder / end for folder in FOLDERS for end in (f"{stem}.py", f"{stem}/__init__.py"))
    return next((path for path in places if module and path.is_file()), None)
