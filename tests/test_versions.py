"""The ranges of versions in pyproject.toml begin where something is tested."""

from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOWEST_TESTED = ("robot", "signing", "data", "gym", "serve", "leapp")
"""Extras that `make test-lowest` installs, beside what every robot needs."""


def pins(name):
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines() if line[:1] != "-"]
    return {
        item.name: Version(str(next(iter(item.specifier)).version)) for item in map(Requirement, filter(None, lines))
    }


def lowest(requirements):
    """Lowest allowed version by package; what is pinned by == is not a range."""
    found = {}
    for item in map(Requirement, requirements):
        bounds = [Version(part.version) for part in item.specifier if part.operator in (">=", "~=")]
        if item.name != PROJECT["name"] and not any(part.operator == "==" for part in item.specifier):
            assert bounds, f"{item} has no lower bound"
            found[item.name] = max(bounds)
    return found


def test_the_lowest_versions_of_a_robot_are_those_that_are_tested():
    declared = lowest([*PROJECT["dependencies"], *(line for name in LOWEST_TESTED for line in EXTRAS[name])])
    assert pins("constraints-lowest.txt") == declared


@pytest.mark.parametrize("extra", ["train", "dev"])
def test_the_lowest_versions_for_training_are_those_of_the_constraints(extra):
    tested = pins("constraints.txt")
    for name, version in lowest(EXTRAS[extra]).items():
        assert tested[name].release[: len(version.release)] == version.release, name


def test_setup_takes_the_versions_of_python_that_the_project_allows():
    # Robots may have 3.10; what trains and tests needs 3.11.
    assert PROJECT["requires-python"] == ">=3.10,<3.14"
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "scripts/setup.sh").read_text()
