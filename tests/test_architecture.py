"""The rules of the house: imports look down, files and functions stay small, the robot side stays light."""

import ast
import json
import os
import runpy
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "gantry_hardware": ROOT / "hardware",
    "gantry_mapping": ROOT / "mapping",
    "gantry_deploy": ROOT / "deploy",
    "gantry_policies": ROOT / "policies",
    "gantry_sim": ROOT / "sim",
    "gantry_ros": ROOT / "ros_ws/src/gantry_ros",
    "gantry_bringup": ROOT / "ros_ws/src/gantry_bringup",
}
ROBOT_SIDE = ("gantry_hardware", "gantry_mapping", "gantry_deploy", "gantry_ros", "gantry_bringup")
HEAVY = ("torch", "mujoco", "mjlab", "rsl_rl", "gantry_policies", "gantry_sim")

FILE_LINES, TEST_LINES, FUNCTION_LINES, CLASS_ATTRIBUTES = 400, 500, 60, 25


def package_files():
    return [path for name, folder in PACKAGES.items() for path in sorted((folder / name).rglob("*.py"))]


def example_files():
    return sorted((ROOT / "examples").glob("*/gantry_*/**/*.py"))


def own_tests():
    return sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").glob("*/tests/**/*.py"), ROOT / "conftest.py"])


def label(path):
    return str(path.relative_to(ROOT))


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node):
    """Statements in a node, those in them included; expressions, where nothing is defined, are left alone."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for item in getattr(node, part, ()):
            yield item
            yield from statements(item)


def functions(tree):
    return [node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def assigned(statement):
    """Targets that a statement assigns to."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in statement.items if item.optional_vars is not None]
    return [statement.target] if hasattr(statement, "target") else []


def self_attributes(tree):
    """Per class, the names that its own methods assign on ``self``."""
    return {
        node.name: {
            target.attr
            for method in node.body
            if isinstance(method, ast.FunctionDef)
            for statement in statements(method)
            for place in assigned(statement)
            for target in ast.walk(place)
            if isinstance(target, ast.Attribute)
            and isinstance(target.ctx, ast.Store)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        }
        for node in statements(tree)
        if isinstance(node, ast.ClassDef)
    }


def public_functions(tree):
    """Functions of the module and methods of its classes, as far as no name starts with an underscore."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    bodies = [tree.body, *(node.body for node in classes)]
    for body in bodies:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                yield node


def unannotated(function):
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    arguments += [extra for extra in (function.args.vararg, function.args.kwarg) if extra is not None]
    missing = [item.arg for item in arguments if item.annotation is None and item.arg not in ("self", "cls")]
    return missing + (["return"] if function.returns is None else [])


def test_every_package_is_found():
    assert all((folder / name / "__init__.py").is_file() for name, folder in PACKAGES.items())


def test_imports_look_down():
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("import-linter is not installed (extra 'dev')")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", ROBOT_SIDE)
def test_the_robot_side_loads_neither_torch_nor_a_simulator(package):
    """Imports every module of the package in a fresh interpreter and looks at what came along."""
    if package == "gantry_ros":
        pytest.importorskip("rclpy")
    modules = [
        ".".join(path.relative_to(PACKAGES[package]).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((PACKAGES[package] / package).rglob("*.py"))
        # These start a program or belong to ROS's own launch system, so that nobody imports them.
        if path.name != "__main__.py"
        and not path.name.endswith(".launch.py")
        # Training of the mapping network is the one exception, which nothing on a robot imports.
        and "gantry_mapping/learn/" not in path.as_posix()
    ]
    code = f"""
import importlib, json, sys
for name in {modules!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # ROS's launch system is no wheel; what imports it is used where ROS 2 itself is installed.
        if (error.name or "").partition(".")[0] not in ("launch", "launch_ros"):
            raise
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "tests")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_json_is_parsed_in_one_place():
    """The strict reader's, so that no file can say two things to two readers."""
    found = set()
    for path in package_files():
        if "json" not in path.read_text(encoding="utf-8"):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "json":
                names = {node.attr}
            elif isinstance(node, ast.ImportFrom) and node.module == "json":
                names = {item.name for item in node.names}
            else:
                continue
            if names & {"load", "loads", "JSONDecoder"}:
                found.add(label(path))
    assert found == {"hardware/gantry_hardware/files/json_file.py"}


def test_house_limits():
    broken = []
    tests = own_tests()
    for path in [*package_files(), *example_files(), *tests]:
        text, tree = path.read_text(encoding="utf-8"), parsed(path)
        limit = TEST_LINES if path in tests else FILE_LINES
        if text.count("\n") > limit:
            broken.append(f"{label(path)} has {text.count(chr(10))} lines, at most {limit}")
        for node in functions(tree):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > FUNCTION_LINES:
                broken.append(f"{label(path)}: {node.name} has {length} lines, at most {FUNCTION_LINES}")
        for name, attributes in self_attributes(tree).items():
            if len(attributes) > CLASS_ATTRIBUTES:
                broken.append(f"{label(path)}: {name} has {len(attributes)} attributes, at most {CLASS_ATTRIBUTES}")
    assert broken == []


def test_public_functions_are_annotated():
    bare = {
        f"{label(path)}: {function.name}": unannotated(function)
        for path in package_files()
        for function in public_functions(parsed(path))
        if unannotated(function)
    }
    assert bare == {}


def tracked_files():
    if shutil.which("git") and (ROOT / ".git").exists():
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def test_no_path_of_one_machine_in_the_repository():
    forbidden = [f"/{folder}/".encode() for folder in ("work", "root")]
    forbidden += [os.fsencode(ROOT) + b"/"]
    found = {
        label(path): [word.decode() for word in forbidden if word in data]
        for path in tracked_files()
        if any(word in (data := path.read_bytes()) for word in forbidden)
    }
    assert found == {}


def test_the_repository_stays_small():
    """A clone should take seconds; models and recordings that are larger do not belong here."""
    large = {label(path): path.stat().st_size for path in tracked_files() if path.stat().st_size > 3_000_000}
    assert large == {}


def imported_modules(path, known):
    """Modules of ``known`` that a file imports anywhere, inside of functions and for types as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {name if (name := f"{node.module}.{item.name}") in known else node.module for item in node.names}
    return found & known


def cycle_of(graph):
    """The first cycle of a graph as a list of nodes; empty if there is none."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        path.append(node)
        for other in sorted(graph[node]):
            if found := visit(other):
                return found
        path.pop()
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node))), [])


def test_a_cycle_is_found():
    assert cycle_of({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert cycle_of({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_no_module_imports_itself_by_way_of_others():
    names = {}
    for package, folder in PACKAGES.items():
        for path in (folder / package).rglob("*.py"):
            dotted = ".".join(path.relative_to(folder).with_suffix("").parts)
            names[dotted.removesuffix(".__init__")] = path
    graph = {name: imported_modules(path, set(names)) - {name} for name, path in names.items()}
    assert sum(map(len, graph.values())) > len(graph)
    assert cycle_of(graph) == []


ASKS_AT_MOST = 40
"""Lines outside of the embodiments that ask for the kind of robot, a body of one kind, or a capability; it may only
fall.
"""


def test_fewer_and_fewer_lines_ask_for_the_kind_of_robot():
    script = runpy.run_path(str(ROOT / "scripts" / "measure" / "structure.py"))
    count = script["lines_that_ask_for_the_kind"]
    assert count("if contract.arm is not None:\n    pass\nif isinstance(robot, SeeingRobot) and spec.car:\n") == 2
    assert count('x.embodiment == "arm"\nbody = contract.body_as(ArmSpec)\nisinstance(spec.body, Chain)\n') == 3
    assert count("contract.armature\nspec.cars\nis_armed(x)\nreturn isinstance(self.body, kind)\n") == 0
    found = script["questions"]({path: path.read_text() for path in script["product_files"]()})
    assert sum(found.values()) <= ASKS_AT_MOST, found
