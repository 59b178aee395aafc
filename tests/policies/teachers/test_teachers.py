"""Teachers of every kind: the same bundle here and behind a server, and refusals in words."""

from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.contract.parts import ChunkSpec
from gantry_deploy.errors import BundleError, PolicyServerError
from gantry_deploy.observations.builder import make_term
from gantry_deploy.openpi.codec import encode
from gantry_deploy.openpi.description import CameraNeed, PolicyDescription, mismatches
from gantry_deploy.openpi.served import MAX_ROWS, ServedPolicy
from gantry_deploy.openpi.server import ServeConfig
from gantry_fixtures.arm import arm_bundle, arm_contract_for, with_cameras
from gantry_fixtures.openpi import bundle_server, other_server, port_of
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.robots.yam import SPEC
from gantry_policies.teachers import registry
from gantry_policies.teachers.registry import GROUP, make_teacher, teacher_names
from gantry_policies.teachers.remote import CALL_BYTES
from gantry_policies.teachers.teacher import TeacherError, TeacherQuestion, TimedTeacher, checked_plan

STEPS = arm_contract_for(SPEC)
SEEN = (make_term("joint_pos", 7), make_term("joint_lead", 7))
PLANS = with_cameras(replace(STEPS, observations=SEEN, chunk=ChunkSpec(5, 2)), "wrist", "front", size_px=6)
KEY = "a-key-of-enough-letters"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return arm_bundle(tmp_path_factory.mktemp("plans") / "b", PLANS, seed=1)


def question(rows, seed=0, text="pick it up", **changes):
    rng = np.random.default_rng(seed)
    images = {name: rng.integers(0, 256, (rows, 6, 6, 3), np.uint8) for name in ("wrist", "front")}
    state = rng.normal(0.0, 0.2, (rows, 14)).astype(np.float32)
    return replace(TeacherQuestion(images, state, [text] * rows), **changes)


@pytest.fixture(scope="module")
def address(bundle):
    with bundle_server(ServedPolicy(bundle)) as address:
        yield f"openpi:127.0.0.1:{port_of(address)}?deadline_s=60"


def test_a_bundle_answers_the_same_here_and_behind_a_server(bundle, address):
    here, there = make_teacher(f"bundle:{bundle.path}"), make_teacher(address)
    asked = question(MAX_ROWS + 3)
    asked = replace(asked, instructions=["a", "b"] * (asked.rows // 2) + ["a"])
    found = here.plan(asked)
    assert found.shape == (MAX_ROWS + 3, 5, 4)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(there.plan(asked), found)
    np.testing.assert_array_equal(here.plan(asked), found)
    assert mismatches(there.description, here.description) == mismatches(here.description, there.description) == []
    assert there.description == replace(here.description, max_rows=MAX_ROWS)
    for teacher in (here, there):
        teacher.close()


def test_rows_are_independent_of_one_another(address):
    teacher, asked = make_teacher(address), question(3)
    found = teacher.plan(asked)
    images = {name: pictures[1:2] for name, pictures in asked.images.items()}
    np.testing.assert_array_equal(teacher.plan(TeacherQuestion(images, asked.state[1:2], ["a"]))[0], found[1])
    teacher.close()


def test_a_residual_plans_anew_for_each_row(tmp_path):
    contract = replace(STEPS, chunk=ChunkSpec(5, 2, residual=True))
    made = arm_bundle(tmp_path / "b", contract, base={"seed": 3}, seed=4)
    state = np.random.default_rng(0).normal(0.0, 0.2, (3, contract.observation_size)).astype(np.float32)
    with bundle_server(ServedPolicy(made)) as address:
        teacher, there = make_teacher(f"bundle:{made.path}"), make_teacher(f"openpi:127.0.0.1:{port_of(address)}")
        found = teacher.plan(TeacherQuestion({}, state, [""] * 3))
        assert found.shape == (3, 1, 4)
        np.testing.assert_array_equal(teacher.plan(TeacherQuestion({}, state[[2, 0]], [""] * 2)), found[[2, 0]])
        # Behind a server a residual goes on with its plan; it is another question then.
        assert there.plan(TeacherQuestion({}, state, [""] * 3)).shape == (3, 1, 4)
        there.close()


@pytest.fixture
def libero():
    """A server of other people: keys of their own, one row a call, and no description."""
    asked = []

    def answer(connection, observation):
        asked.append(observation)
        mean = observation["observation/image"].mean() + observation["observation/wrist_image"][0, 0, 0]
        connection.send(encode({"actions": np.full((3, 7), mean, np.float64)}))

    with other_server(answer) as port:
        keys = "camera.front=observation/image&camera.wrist=observation/wrist_image"
        yield f"openpi:127.0.0.1:{port}?{keys}&deadline_s=60", asked


def test_a_server_of_others_is_asked_by_its_own_keys_row_by_row(libero):
    text, asked = libero
    teacher, ask = make_teacher(text), question(2)
    found = teacher.plan(replace(ask, images={**ask.images, "third": ask.images["wrist"]}))
    means = [ask.images["front"][i].mean() + ask.images["wrist"][i, 0, 0, 0] for i in range(2)]
    np.testing.assert_allclose(found, np.broadcast_to(np.reshape(means, (2, 1, 1)), (2, 3, 7)), rtol=1e-6)
    assert asked[0].keys() == {"observation/state", "observation/image", "observation/wrist_image", "prompt"}
    assert asked[1]["prompt"] == "pick it up"
    np.testing.assert_array_equal(asked[1]["observation/state"], ask.state[1])
    assert teacher.description == PolicyDescription()
    with pytest.raises(TeacherError, match="is sent camera 'front', the question has: wrist"):
        teacher.plan(replace(ask, images={"wrist": ask.images["wrist"]}))
    teacher.close()


def test_other_options_of_keys(libero):
    text, asked = libero
    teacher = make_teacher(text + "&state=state&prompt=&channels_first=true")
    teacher.plan(question(1))
    assert asked[0].keys() == {"state", "observation/image", "observation/wrist_image"}
    assert asked[0]["observation/image"].shape == (3, 6, 6)
    teacher.close()


def test_large_rows_are_shared_out_over_calls():
    """Each call stays below the bound of its bytes, whatever number of rows the server takes."""
    sizes = []

    def answer(connection, observation):
        sizes.append(observation["gantry/rows"])
        connection.send(encode({"actions": np.zeros((sizes[-1], 1, 2), np.float32)}))

    edge = 2048
    told = PolicyDescription(max_rows=64, cameras=(CameraNeed("wrist", edge, edge),), state_size=1).to_metadata()
    with other_server(answer, told) as port:
        teacher = make_teacher(f"openpi:127.0.0.1:{port}?deadline_s=60")
        images = {"wrist": np.zeros((5, edge, edge, 3), np.uint8)}
        assert teacher.plan(TeacherQuestion(images, np.zeros((5, 1), np.float32), ["a"] * 5)).shape == (5, 1, 2)
        teacher.close()
    assert CALL_BYTES // (3 * edge**2 + 4) == 2
    assert sizes == [2, 2, 1]


def test_a_key_and_a_task_are_handed_to_the_server(bundle, tmp_path):
    (tmp_path / "key.txt").write_text(KEY + "\n")
    with bundle_server(ServedPolicy(bundle, "pick it up"), ServeConfig(port=0, api_key=KEY)) as address:
        text = f"openpi:127.0.0.1:{port_of(address)}"
        teacher = make_teacher(f"{text}?deadline_s=60&api_key_file={tmp_path / 'key.txt'}")
        assert teacher.plan(question(2)).shape == (2, 5, 4)
        with pytest.raises(PolicyServerError, match="this policy does one task"):
            teacher.plan(question(2, text="wipe"))
        teacher.close()
        with pytest.raises(PolicyServerError, match="HTTP 401"):
            make_teacher(text)


def test_questions_that_do_not_fit_are_refused_before_anything_is_sent(bundle, address):
    for teacher in (make_teacher(f"bundle:{bundle.path}"), make_teacher(address)):
        good = question(2)
        small = {name: pictures[:, :4] for name, pictures in good.images.items()}
        for asked, words in (
            (replace(good, state=good.state[:, :9]), "sees 14 numbers of state, the question has 9"),
            (replace(good, images={"wrist": good.images["wrist"]}), "sees camera 'front', the question has: wrist"),
            (replace(good, images=small), "sees camera 'wrist' with 6 x 6 pixels, the question has 4 x 6"),
        ):
            with pytest.raises(TeacherError, match=words):
                teacher.plan(asked)
        teacher.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": np.zeros((2, 14))}, "state of a question is float64"),
        ({"state": np.zeros((0, 14), np.float32), "instructions": []}, "has no row"),
        ({"instructions": ["a"]}, "has 1 instructions, expected 2"),
        ({"images": {"wrist": np.zeros((2, 3, 6, 6), np.uint8)}}, "'wrist' are uint8 of shape"),
        ({"images": {"wrist": np.zeros((2, 6, 6, 3))}}, "'wrist' are float64"),
    ],
)
def test_questions_that_make_no_sense(changes, words):
    with pytest.raises(TeacherError, match=words):
        question(2, **changes)


def test_plans_that_make_no_sense():
    told = PolicyDescription(horizon=3, action_size=2)
    bad = np.zeros((1, 3, 2), np.float32)
    bad[0, 1, 1] = np.nan
    for plan, words in (
        (np.zeros((1, 2, 2), np.float32), r"\(1, 2, 2\) numbers, expected \(1, 3, 2\)"),
        (bad, "nan at"),
    ):
        with pytest.raises(TeacherError, match=words):
            checked_plan(plan, 1, told, "t")


def test_calls_rows_time_and_failures_are_counted(bundle):
    timed = TimedTeacher(make_teacher(f"bundle:{bundle.path}"))
    assert timed.counts() == {"calls": 0, "rows": 0, "failures": 0, "seconds": 0.0, "seconds_per_row": 0.0}
    timed.plan(question(3))
    with pytest.raises(TeacherError):
        timed.plan(question(2, images={}))
    timed.plan(question(2))
    counts = timed.counts()
    assert (counts["calls"], counts["rows"], counts["failures"]) == (3, 5, 1)
    assert counts["seconds"] == pytest.approx(5 * counts["seconds_per_row"])
    assert counts["seconds"] > 0.0
    assert timed.description.horizon == 5
    timed.close()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("opnepi:localhost:8000", UnknownNameError, "Unknown kind of teacher 'opnepi'. Did you mean 'openpi'?"),
        ("openpi", TeacherError, "names no teacher; expected for example openpi:HOST:PORT"),
        ("bundle:", TeacherError, "names no teacher"),
        ("openpi:localhost", TeacherError, "is 'localhost', expected HOST:PORT"),
        ("openpi:localhost:8000?stat=x", UnknownNameError, "Did you mean 'state'?"),
        ("openpi:localhost:8000?state", TeacherError, "not of the form"),
        ("openpi:localhost:8000?deadline_s=soon", TeacherError, "deadline_s is 'soon'"),
        ("openpi:localhost:8000?channels_first=maybe", TeacherError, "expected true or false"),
        ("lerobot-async:localhost:8080", TeacherError, "pickles, which run whatever code"),
        ("bundle:/nothing/here", BundleError, "There is no bundle at /nothing/here"),
    ],
)
def test_texts_that_name_no_teacher(text, error, words):
    with pytest.raises(error) as caught:
        make_teacher(text)
    assert words in str(caught.value)


def test_kinds_are_those_of_the_installation():
    assert {"openpi", "bundle", "lerobot"} <= set(teacher_names())
    for entry in entry_points(group=GROUP):
        assert callable(entry.load())
    assert registry.REFUSED.keys().isdisjoint(teacher_names())


def test_the_example_of_the_guide_runs(capsys):
    text = (Path(__file__).parents[3] / "docs/serve.md").read_text(encoding="utf-8")
    block = next(part for part in text.split("```python\n") if "make_teacher" in part).partition("```")[0]
    exec(compile(block, "docs/serve.md", "exec"), {})
    assert capsys.readouterr().out.startswith("(8, 1, 4) {'calls': 1, 'rows': 8, 'failures': 0")


def test_another_package_adds_a_kind(tmp_path, monkeypatch):
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gantry.teachers]\nconstant = others_teacher:make\nbroken = nothing:make\n")
    (tmp_path / "others_teacher.py").write_text(
        "import numpy as np\n"
        "from gantry_deploy.openpi.description import PolicyDescription\n"
        "class Constant:\n"
        "    description = PolicyDescription(horizon=2, action_size=3)\n"
        "    def __init__(self, value): self.value = value\n"
        "    def plan(self, question): return np.full((question.rows, 2, 3), self.value, np.float32)\n"
        "    def close(self): pass\n"
        "def make(text): return Constant(float(text))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    timed = TimedTeacher(make_teacher("constant:0.5"))
    np.testing.assert_array_equal(timed.plan(question(2)), np.full((2, 2, 3), 0.5, np.float32))
    with pytest.raises(TeacherError, match=r"Teacher 'broken': entry point 'nothing:make' cannot be loaded"):
        make_teacher("broken:1")
