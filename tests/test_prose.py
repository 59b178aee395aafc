"""Plain words in product code: openings of docstrings, pronouns, and the shapes, units and frames that arrays need.

A docstring opens with a noun or an imperative in the field's term, so that it can be found by searching for that term.
``Whether`` may open the docstring of a function or of a field: it is the usual idiom for a boolean that is returned or
held, one or many. A module or a class is no boolean, so that it may not open with ``Whether`` either.

The tables at the top are ratchets: counts may only fall, shares may only rise.
"""

import ast
import io
import itertools
import re
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "hardware": "hardware/gantry_hardware",
    "mapping": "mapping/gantry_mapping",
    "deploy": "deploy/gantry_deploy",
    "policies": "policies/gantry_policies",
    "sim": "sim/gantry_sim",
    "ros": "ros_ws/src/gantry_ros",
    "scripts": "scripts",
}

# Docstrings that open with an interrogative, and pronouns for people: none.
OPENINGS = {"hardware": 0, "mapping": 0, "deploy": 0, "policies": 0, "sim": 0, "ros": 0, "scripts": 0}
PRONOUNS = {"hardware": 0, "mapping": 0, "deploy": 0, "policies": 0, "sim": 0, "ros": 0, "scripts": 0}
# Public functions with arrays whose docstring names a shape, a unit, and a frame where one is needed: at least so many
# percent. No position in `policies` is one in space, so that its frames do not count.
SHARES = {
    "hardware": (92, 84, 50),
    "mapping": (95, 91, 88),
    "deploy": (93, 87, 85),
    "policies": (90, 78, 0),
    "sim": (81, 76, 66),
    "ros": (100, 69, 60),
}
ASPECTS = ("shape", "unit", "frame")

INTERROGATIVE = re.compile(r"\W*(what|who|whoever|whom|whose|where|which|how|when|why|whether)\b", re.IGNORECASE)
PRONOUN = re.compile(r"\b(who|whoever|whom|nobody|somebody|anybody)\b", re.IGNORECASE)

ARRAY = re.compile(r"(?<!Multi)(?<!Diagnostic)(ndarray|Array)\b|Tensor(Dict)?\b")
SPATIAL = re.compile(r"(^|_)(pos|position|vel|velocity|quat|force|pose|points?|gravity|goal|xy|xyz|yaw|heading)s?(_|$)")

# Words that name a dimension; single letters, with or without a digit, and numbers do so as well.
_WORDS = (
    "rows|cols|columns|width|height|sizes?|channels|feet|beams|frames|joints?|cells|pixels|goals|count|contacts|inputs"
    "|outputs|window|latent|depth|episodes|steps|samples|heads|tokens|environments|envs|obs|corners|attention|num_joints"
    "|num_envs|num_feet|obs_size|observation_size|action_size|token_width|frame_size|latent_size|proprio_width|points"
)
_SYMBOL = rf"(?:\.{{3}}|\d*[a-zA-Z]\d?|\d+|len\(\w+\)|\w+\.observation_size|{_WORDS})"
_DIMENSION = rf"\*?\\?\*?{_SYMBOL}(?:(?:\s?[-+*]\s?|\s){_SYMBOL})*"
SHAPE = re.compile(
    rf"\(\s*(?:{_DIMENSION}\s*,\s*)+(?:{_DIMENSION})?\s*\)|\bscalars?\b|\b(?:any|one) shape\b|\bshape of ``"
)
_UNIT = (
    r"(?:m|cm|s|ms|rad|kg|N|N m|Hz|px|deg|°|%|m/s|rad/s|m/s\^2|rad/s\^2|m\^2|1/m|1/s|m/rad|N m/rad|N m s/rad|nats|-|1)"
)
UNIT = re.compile(
    # In brackets, behind a comma or "in", as the suffix of a name, behind a number,
    rf"\[{_UNIT}(?:, {_UNIT})*\]|(?:, |,? (?:in|and|or) |\(){_UNIT}(?=[\s,.;:)]|$)"
    r"|\w_(?:m|s|rad|kg|n|nm|hz|px|ms|m_s|rad_s|m_s2|deg)\b|\d ?(?:m|s|rad|kg|N|Hz|m/s|rad/s|ms)\b"
    r"|\b(?:metres?|seconds?|radians?|degrees?|newtons?|nanoseconds?|unit (?:vector|quaternion)s?|quaternions?)\b"
    # or a statement that the numbers have none.
    r"|\b(?:bool|int64|uint8|bytes|masks?|indices|shares?|0 to 1|0 to 255|normalised|unitless|dimensionless|scaled)\b"
    r"|\b(?:(?:log-)?probabilit(?:y|ies)|log-densit(?:y|ies))\b"
    r"|\[(?:-1|0), 1\]|\bany (?:shape and )?unit\b|\bunits\b"
)
FRAME = re.compile(r"\bframes?\b|\bworld\b|\baxes\b|\bcoordinates\b", re.IGNORECASE)


@dataclass(frozen=True)
class Doc:
    """A docstring: the line that it starts on, the kind of its owner, and its text."""

    line: int
    kind: str
    text: str


def text_of(statement):
    """The text of a statement that is nothing but a string."""
    value = (
        statement.value.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) else None
    )
    return value if isinstance(value, str) else None


def docs(tree):
    """Docstrings of the module, its classes and functions, and of fields: a string below an assignment."""
    kinds = ((ast.Module, "module"), (ast.ClassDef, "class"), (ast.FunctionDef | ast.AsyncFunctionDef, "function"))
    for node in ast.walk(tree):
        kind = next((name for types, name in kinds if isinstance(node, types)), None)
        body = getattr(node, "body", None)
        if kind is not None and body and text_of(body[0]) is not None:
            yield Doc(body[0].lineno, kind, text_of(body[0]))
        if kind in ("module", "class"):
            for above, below in itertools.pairwise(body):
                if isinstance(above, ast.Assign | ast.AnnAssign) and text_of(below) is not None:
                    yield Doc(below.lineno, "field", text_of(below))


def interrogative_openings(source):
    """Lines and texts of the docstrings that open with an interrogative."""
    found = []
    for doc in docs(ast.parse(source)):
        word = INTERROGATIVE.match(doc.text)
        if word and not (word[1].lower() == "whether" and doc.kind in ("function", "field")):
            found.append((doc.line, doc.text.strip().splitlines()[0]))
    return found


def pronouns(source):
    """Lines and texts of the pronouns for people in strings and comments."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for index, line in enumerate(node.value.splitlines()):
                found += [(node.lineno + index, line.strip()) for _ in PRONOUN.findall(line)]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            found += [(token.start[0], token.string) for _ in PRONOUN.findall(token.string)]
    return sorted(found)


def public_functions(tree):
    """Names and nodes of functions of the module and methods of its classes, as far as no name has an underscore."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from ((f"{node.name}.{name}", inner) for name, inner in public_functions(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            not node.name.startswith("_") or node.name == "__call__"
        ):
            yield node.name, node


def array_arguments(function):
    """Names of the arguments whose annotation holds an array, and whether what is returned does."""
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = [item.arg for item in given if item.annotation and ARRAY.search(ast.unparse(item.annotation))]
    return names, function.returns is not None and bool(ARRAY.search(ast.unparse(function.returns)))


def array_docs(source):
    """Per public function that takes or returns arrays: name, line, and which aspects it needs and names."""
    for name, function in public_functions(ast.parse(source)):
        names, returned = array_arguments(function)
        if not names and not returned:
            continue
        text = ast.get_docstring(function) or ""
        if text.startswith("See :"):
            continue  # It says so where it refers to.
        spatial = any(
            SPATIAL.search(word) and "joint" not in word for word in [*names, *([function.name] if returned else [])]
        )
        found = {"shape": bool(SHAPE.search(text)), "unit": bool(UNIT.search(text))}
        if spatial:
            found["frame"] = bool(FRAME.search(text))
        yield name, function.lineno, found


def files(package):
    return sorted((ROOT / PACKAGES[package]).rglob("*.py"))


def over_files(package, analyse):
    """What an analyser finds in each file of a package, one line of text per finding."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files(package)
        for line, text in analyse(path.read_text(encoding="utf-8"))
    ]


def shares(package):
    """Per aspect the share of functions that name it, in percent, and the functions that do not."""
    needed, named, missing = Counter(), Counter(), []
    for path in files(package):
        for name, line, found in array_docs(path.read_text(encoding="utf-8")):
            needed.update(found.keys())
            named.update(aspect for aspect, there in found.items() if there)
            lacking = [aspect for aspect, there in found.items() if not there]
            if lacking:
                missing.append(f"{path.relative_to(ROOT)}:{line}: {name} names no {', '.join(lacking)}")
    return {aspect: 100 * named[aspect] / needed[aspect] for aspect in ASPECTS if needed[aspect]}, missing


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_open_with_a_noun_or_an_imperative(package):
    found = over_files(package, interrogative_openings)
    print("\n".join(found))
    assert files(package)
    assert len(found) <= OPENINGS[package]


@pytest.mark.parametrize("package", PACKAGES)
def test_things_are_no_people(package):
    found = over_files(package, pronouns)
    print("\n".join(found))
    assert len(found) <= PRONOUNS[package]


@pytest.mark.parametrize("package", SHARES)
def test_arrays_have_shapes_units_and_frames(package):
    reached, missing = shares(package)
    print("\n".join(missing))
    least = dict(zip(ASPECTS, SHARES[package], strict=True))
    assert {aspect: share for aspect, share in reached.items() if share < least[aspect]} == {}


SNIPPET = '''
"""What a module does."""


class Robot:
    """Who walks."""

    speed_m_s: float = 1.0
    """How fast, and nobody asks."""

    ready: bool = False
    """Whether it may move."""

    def goal(self):
        """Where to go."""
        return "Whose turn it is"  # Somebody's.


class Check:
    """Whether a robot may move."""


def walk():
    """Walk as fast as whoever commands it says."""
    return f"{walk} who"
'''


def test_openings_of_a_snippet():
    found = [text for _, text in interrogative_openings(SNIPPET)]
    assert sorted(found) == [
        "How fast, and nobody asks.",
        "What a module does.",
        "Where to go.",
        "Whether a robot may move.",
        "Who walks.",
    ]


def test_pronouns_of_a_snippet():
    assert [line for line, _ in pronouns(SNIPPET)] == [6, 9, 16, 24, 25]
    assert pronouns('name = "whole"  # whose') == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rotate vectors.", {"shape": False, "unit": False, "frame": False}),
        ("Vectors (n, 3) in the base frame [m/s].", {"shape": True, "unit": True, "frame": True}),
        ("Velocities (n,), one speed_m_s per row.", {"shape": True, "unit": True, "frame": False}),
        ("Velocities (see there) in metres per second.", {"shape": False, "unit": True, "frame": False}),
        ("Velocities (left, right) [left].", {"shape": False, "unit": False, "frame": False}),
        ("Velocities (N, 3 f), rad/s, along the world's axes.", {"shape": True, "unit": True, "frame": True}),
        ("Poses (rows, cols - 1) of N robots in m.", {"shape": True, "unit": True, "frame": False}),
    ],
)
def test_aspects_of_a_snippet(text, expected):
    source = f'def rotate(vel: NDArray[Any]) -> None:\n    """{text}"""\n'
    assert [found for _, _, found in array_docs(source)] == [expected]


def test_functions_that_need_no_shape():
    source = """
def names(data: bytes) -> list[str]: ...
def _hidden(data: FloatArray) -> None: ...
def listed(message: Float64MultiArray) -> DiagnosticArray: ...
class Net:
    def forward(self, x: torch.Tensor) -> torch.Tensor: ...
"""
    assert [(name, found) for name, _, found in array_docs(source)] == [
        ("Net.forward", {"shape": False, "unit": False})
    ]
