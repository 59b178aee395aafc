"""Dataclasses from plain data and from the command line: what fits is taken, what does not is named."""

from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from gantry_deploy.errors import ContractError
from gantry_hardware.files.structured import ConfigError, from_plain, set_field, set_fields


@dataclass(frozen=True)
class Noise:
    width_m: float = 0.1
    bias_m: float = 0.0


@dataclass(frozen=True)
class Env:
    robot: str
    num_envs: int
    flat: bool = True
    friction: tuple[float, float] = (0.4, 1.2)
    hidden: tuple[int, ...] = (8, 8)
    noise: Noise | None = field(default_factory=Noise)
    weights: dict[str, float] = field(default_factory=dict)
    clip: float | None = None
    extra: Any = None


@dataclass(frozen=True)
class Preset:
    env: Env
    steps: int = 10


PLAIN = {"robot": "go2", "num_envs": 4}


def test_plain_data_becomes_the_dataclass():
    data = PLAIN | {
        "friction": [1, 2.5],
        "hidden": [64, 32, 16],
        "noise": {"width_m": 2},
        "weights": {"tilt": -1},
        "clip": None,
        "extra": {"any": ["thing"]},
    }
    env = from_plain(Env, data, "env")
    assert env == Env("go2", 4, True, (1.0, 2.5), (64, 32, 16), Noise(2.0, 0.0), {"tilt": -1.0}, None, data["extra"])
    assert [type(value) for value in (*env.friction, env.noise.width_m, env.weights["tilt"])] == [float] * 4
    assert from_plain(Env, PLAIN | {"noise": None, "clip": 3}, "env") == Env("go2", 4, noise=None, clip=3.0)


def test_there_and_back():
    preset = Preset(Env("go1", 7, friction=(0.1, 0.2), weights={"a": 1.0}), 3)
    assert from_plain(Preset, asdict(preset), "preset") == preset


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_env": 3}, r"Unknown field in env 'num_env'\. Did you mean 'num_envs'\? Available: clip, extra, flat"),
        ({"num_envs": "3"}, "env.num_envs is '3', expected a whole number"),
        ({"num_envs": 3.0}, "env.num_envs is 3.0, expected a whole number"),
        ({"num_envs": True}, "env.num_envs is True, expected a whole number"),
        ({"flat": 1}, "env.flat is 1, expected true or false"),
        ({"robot": None}, "env.robot is None, expected a text"),
        ({"clip": "wide"}, "env.clip is 'wide', expected a number"),
        ({"clip": True}, "env.clip is True, expected a number"),
        ({"clip": 10**400}, "env.clip is a number beyond what fits a float"),
        ({"friction": [1.0]}, "env.friction has 1 entries, expected 2"),
        ({"friction": 1.0}, "env.friction is 1.0, expected a list"),
        ({"friction": [1.0, "x"]}, r"env.friction\[1\] is 'x', expected a number"),
        ({"hidden": [8, 8.5]}, r"env.hidden\[1\] is 8.5, expected a whole number"),
        ({"noise": 3}, "env.noise is 3, expected an object"),
        ({"noise": {"width": 1}}, "Unknown field in env.noise 'width'. Did you mean 'width_m'"),
        ({"noise": {"width_m": []}}, r"env.noise.width_m is \[\], expected a number"),
        ({"weights": [1]}, r"env.weights is \[1\], expected an object"),
        ({"weights": {"tilt": "steep"}}, "env.weights.tilt is 'steep', expected a number"),
    ],
)
def test_what_does_not_fit_is_named(change, text):
    with pytest.raises(ConfigError, match=text):
        from_plain(Env, PLAIN | change, "env")


def test_missing_fields_are_named():
    with pytest.raises(ConfigError, match=r"env lacks fields; absent: .*num_envs"):
        from_plain(Env, {"robot": "go2"}, "env")


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_something_else_than_an_object_is_refused(data):
    with pytest.raises(ConfigError, match="expected an object"):
        from_plain(Env, data, "env")


def test_the_caller_chooses_the_error():
    with pytest.raises(ContractError, match=r"contract\.num_envs is 'x'"):
        from_plain(Env, PLAIN | {"num_envs": "x"}, "contract", ContractError)


PRESET = Preset(Env("go2", 4, weights={"tilt": -1.0}))


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("steps", "20", lambda preset: preset.steps == 20),
        ("steps", "3e6", lambda preset: preset.steps == 3_000_000 and type(preset.steps) is int),
        ("env.num_envs", "512", lambda preset: preset.env.num_envs == 512),
        ("env.robot", "go1", lambda preset: preset.env.robot == "go1"),
        ("env.robot", '"go1"', lambda preset: preset.env.robot == "go1"),
        ("env.flat", "false", lambda preset: preset.env.flat is False),
        ("env.friction", "[0.5, 1]", lambda preset: preset.env.friction == (0.5, 1.0)),
        ("env.hidden", "[128]", lambda preset: preset.env.hidden == (128,)),
        ("env.noise", "null", lambda preset: preset.env.noise is None),
        ("env.noise.width_m", "2", lambda preset: preset.env.noise == Noise(2.0)),
        ("env.weights.tilt", "-3", lambda preset: preset.env.weights == {"tilt": -3.0}),
        ("env.weights.slip", "0.5", lambda preset: preset.env.weights == {"tilt": -1.0, "slip": 0.5}),
        ("env.weights", '{"a": 1}', lambda preset: preset.env.weights == {"a": 1.0}),
        ("env.clip", "5", lambda preset: preset.env.clip == 5.0),
    ],
)
def test_one_field_is_changed_and_nothing_else(path, text, found):
    before = asdict(PRESET)
    changed = set_field(PRESET, path, text)
    assert found(changed)
    assert asdict(PRESET) == before  # the original stays as it was
    top = path.partition(".")[0]
    for name, value in asdict(changed).items():
        assert name == top or value == before[name]


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("step", "3", r"Unknown field 'step'\. Did you mean 'steps'\? Available: env, steps\."),
        ("num_envs", "3", r"Unknown field 'num_envs'\. .*Did you mean 'env\.num_envs'\?"),
        ("env.nois.width_m", "3", "Unknown field 'nois'. Did you mean 'noise'"),
        ("env.noise.width", "3", "Unknown field 'width'. Did you mean 'width_m'"),
        ("env.num_envs.more", "3", "'num_envs' in 'env.num_envs.more' has no fields of its own; it is 4"),
        ("env.num_envs", "many", "env.num_envs is 'many', expected a whole number"),
        ("env.num_envs", "1.5", "env.num_envs is 1.5, expected a whole number"),
        ("env.num_envs", "", "env.num_envs is '', expected a whole number"),
        ("env.hidden", "[1e2]", r"env.hidden\[0\] is 100.0, expected a whole number"),
        ("env.flat", "yes", "env.flat is 'yes', expected true or false"),
        ("env.clip", "NaN", "env.clip is 'NaN', expected a finite number"),
        ("env.clip", "Infinity", "env.clip is 'Infinity', expected a finite number"),
        ("env.clip", "nan", "env.clip is 'nan', expected a finite number"),
        ("env.clip", "1e999", "env.clip is '1e999', expected a finite number"),
        ("env.clip", "wide", "env.clip is 'wide', expected a number"),
        ("env.weights.tilt", "steep", "tilt is 'steep', expected a number"),
        ("env", "3", "env is 3, expected an object"),
        ("", "3", "Unknown field ''"),
    ],
)
def test_a_change_that_does_not_fit_is_refused(path, text, message):
    with pytest.raises(ConfigError, match=message):
        set_field(PRESET, path, text)


def test_no_fields_are_found_inside_what_was_switched_off():
    off = set_field(PRESET, "env.noise", "null")
    with pytest.raises(ConfigError, match=r"'noise' in 'env\.noise\.width_m' has no fields of its own; it is None"):
        set_field(off, "env.noise.width_m", "1")


@dataclass(frozen=True)
class Scorer:
    kind: str = "small"
    path: str = ""

    def __post_init__(self):
        if (self.kind == "large") != bool(self.path):
            raise ConfigError(f"kind is '{self.kind}' and path is '{self.path}', expected a path for the large one.")


@dataclass(frozen=True)
class Task:
    scorer: Scorer = field(default_factory=Scorer)
    steps: int = 1


LARGE = [("scorer.kind", "large"), ("scorer.path", "there"), ("steps", "3")]


@pytest.mark.parametrize("changes", [LARGE, LARGE[::-1]])
def test_changes_that_fit_together_alone_come_in_any_order(changes):
    assert set_fields(Task(), changes) == Task(Scorer("large", "there"), 3)
    with pytest.raises(ConfigError, match="kind is 'large' and path is ''"):
        set_fields(Task(), [*changes, ("scorer.path", "")])


def test_of_two_changes_of_a_field_the_last_one_counts():
    parts = [("env.noise.bias_m", "3"), ("env.noise", '{"width_m": 2}'), ("env.noise.bias_m", "1")]
    assert set_fields(PRESET, parts).env.noise == Noise(2.0, 1.0)
    assert set_fields(PRESET, parts[:2]).env.noise == Noise(2.0, 0.0)
    weights = [("env.weights", "{}"), ("env.weights.a", "1"), ("env.weights.b", "2")]
    assert set_fields(PRESET, weights).env.weights == {"a": 1.0, "b": 2.0}
    assert set_fields(PRESET, []) == PRESET
    with pytest.raises(ConfigError, match="no fields of its own; it is None"):
        set_fields(PRESET, [("env.noise.width_m", "1"), ("env.noise", "null"), ("env.noise.width_m", "1")])
