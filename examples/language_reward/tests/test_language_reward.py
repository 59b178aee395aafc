"""Language goals as a reward: factors by hand, when pictures are scored, going on exactly, and nothing in a bundle."""

import math
from dataclasses import replace

import onnx
import pytest
import torch
from safetensors.torch import load_file

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.cli.main import main
from gantry_deploy.observations.surroundings import Surroundings
from gantry_hardware.errors import GantryError
from gantry_hardware.files.structured import set_fields
from gantry_language_reward.cfg import BAD_GOAL, LanguageCfg
from gantry_language_reward.reward import LANGUAGE_FACTORS, LanguageReward
from gantry_language_reward.scorer import clear_share
from gantry_language_reward.small import SMALL_FILE
from gantry_sim.driving.cfg import DriveCfg
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.evaluation import held_out
from gantry_sim.driving.maps.generate import MapConfig
from gantry_sim.driving.reward import RewardCfg, make_reward
from gantry_sim.driving.step_info import COMFORT, StepInfo
from gantry_sim.driving.traffic.traffic_cfg import TrafficCfg
from gantry_sim.tasks.registry import find_task
from gantry_sim.training.run_folder import RunCfg, create_run
from gantry_sim.training.train import export_run, open_trained, train

DT_S = 0.1
ROADS = MapConfig(blocks={"straight": 1.0, "arc": 1.0}, count=(2, 3), lanes=(1,), min_route_m=130.0)
TALKED = DriveCfg(
    num_envs=4,
    maps=ROADS,
    map_count=2,
    routes_per_map=2,
    route_m=120.0,
    traffic=TrafficCfg(slots=3),
    reward=RewardCfg(kind="language"),
)


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Environments are stepped with one."""


class Says:
    """A scorer that says what it is told to, and remembers how many pictures it was shown at once."""

    margin = 0.03

    def __init__(self, lead=0.0):
        self.lead, self.shown = lead, []

    def __call__(self, frames):
        assert frames.dtype == torch.uint8
        assert frames.shape[1:] == (3, 64, 64)
        self.shown.append(len(frames))
        return torch.tensor([0.2 + self.lead, 0.2]).expand(len(frames), 2)


def look(count=2):
    """Two straight roads, nobody there."""
    points = torch.stack((torch.arange(-6.0, 64.0), torch.zeros(70)), dim=1).expand(count, -1, -1)
    half = torch.full((count, 70), 1.75)
    road = Surroundings(route_points_in_world_m=points, route_left_m=half, route_right_m=half)
    return road, torch.zeros(count, 3)


def facts(**changes):
    """Two cars at 6 m/s where 12 are allowed, in the middle of their lanes."""
    none, zero = torch.zeros(2, dtype=torch.bool), torch.zeros(2)
    plain = {"progress": zero + 0.5, "speed_m_s": zero + 6.0, "speed_limit_m_s": zero + 12.0}
    plain |= {"safe_speed_m_s": zero + 12.0, "discomfort": torch.zeros(2, len(COMFORT), dtype=torch.bool)}
    plain |= dict.fromkeys(("off_route", "near_collision", "in_junction", "fault"), none)
    plain |= dict.fromkeys(("lane_share", "heading_error_rad", "steer_change"), zero)
    return StepInfo(**plain | {name: torch.as_tensor(value) for name, value in changes.items()}, look=look)


def made(lead=0.0, **changes):
    return LanguageReward(LanguageCfg(**changes), 2, DT_S, scorer=Says(lead))


def test_a_lead_of_the_bad_goal_by_hand():
    """VLM-RL: 1 - clip(z, 0, 0.03) / 0.03."""
    similarity = torch.tensor([[0.20, 0.25], [0.20, 0.20], [0.21, 0.20], [0.25, 0.20]])
    torch.testing.assert_close(clear_share(similarity, 0.03), torch.tensor([1.0, 1.0, 2 / 3, 0.0]))


@pytest.mark.parametrize(
    ("lead", "change", "expected"),
    [
        (-0.1, {}, [0.5, 0.5]),  # A clear road asks for 12 m/s.
        (-0.1, {"speed_m_s": [12.0, 15.0]}, [1.0, 0.75]),
        (0.015, {}, [1.0, 1.0]),  # Half clear: 6 m/s.
        (0.015, {"speed_m_s": [12.0, 0.0]}, [0.5, 0.5]),
        (0.5, {"speed_m_s": [0.0, 12.0]}, [1.0, 0.0]),
        (0.5, {"speed_m_s": [0.0, 24.0]}, [1.0, 0.0]),  # Never below 0.
        (0.015, {"lane_share": [0.85, -1.7]}, [0.5, 0.0]),
        (0.015, {"lane_share": [0.85, -1.7], "in_junction": [True, True]}, [1.0, 1.0]),
        (0.015, {"heading_error_rad": [math.pi / 4, -math.pi / 4]}, [0.5, 0.5]),
        (0.015, {"lane_share": [0.85, 0.0], "heading_error_rad": [math.pi / 4, 0.0]}, [0.25, 1.0]),
        (0.015, {"fault": [True, False]}, [-10.0, 1.0]),
    ],
)
def test_factors_by_hand(lead, change, expected):
    given, factors = made(lead)(facts(**change))
    torch.testing.assert_close(given, torch.tensor(expected))
    assert tuple(factors) == LANGUAGE_FACTORS


def test_a_number_as_the_highest_speed():
    given, _ = made(-0.1, v_max_m_s=8.0)(facts(speed_m_s=[6.0, 8.0]))
    assert given.tolist() == pytest.approx([0.75, 1.0])


def test_swerving_by_hand():
    """0.115 half widths to either side in turns have that standard deviation, half of 0.23."""
    reward = made(0.015)
    for i in range(40):
        side = 0.115 if i % 2 else -0.115
        given, factors = reward(facts(lane_share=[side, 0.0]))
    assert factors["spread"].tolist() == pytest.approx([0.5, 1.0], abs=1e-5)
    assert given.tolist() == pytest.approx([0.5 * (1 - 0.115 / 1.7), 1.0], abs=1e-5)
    assert reward.remembered[:, 2].tolist() == pytest.approx([0.5, 0.0], abs=1e-5)
    reward.reset(torch.tensor([0]))
    assert reward(facts(lane_share=[0.5, 0.0]))[1]["spread"].tolist() == [1.0, 1.0]


def test_pictures_are_scored_together_and_hold_until_the_next_look():
    reward = made(every_s=0.4)
    shown, seen = reward.scorer.shown, []
    for i in range(9):
        reward.scorer.lead = 0.03 if i >= 1 else 0.0
        reward(facts())
        seen.append(reward.clear.tolist())
    # At once, since nothing is known, and then at every fourth step.
    assert shown == [2, 2, 2]
    assert seen == [[1.0, 1.0]] * 3 + [[0.0, 0.0]] * 6
    reward.reset(torch.tensor([1]))
    assert reward.clear.tolist() == [0.0, 1.0]
    reward(facts())
    assert shown == [2, 2, 2, 1]
    assert reward.clear.tolist() == [0.0, 0.0]
    assert reward.remembered[0].tolist() == pytest.approx([0.0, 0.5, 0.0])


def test_it_goes_on_where_it_was():
    one, other = made(0.01, every_s=0.4), made(0.01, every_s=0.4)
    for i in range(6):
        one(facts(lane_share=[0.1 * i, 0.0]))
    other.load_state_dict(one.state_dict())
    for _ in range(4):
        given = [reward(facts(lane_share=[0.3, 0.1]))[0] for reward in (one, other)]
        assert torch.equal(*given)
    assert one.scorer.shown[-1:] == other.scorer.shown


def test_an_environment_that_shows_nothing_is_refused():
    with pytest.raises(GantryError, match="does not say what is around its cars"):
        made()(replace(facts(), look=None))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scorer": "clipp", "path": "x"}, "clipp.*Did you mean 'clip'"),
        ({"scorer": "clip"}, "options.path is empty"),
        ({"every_s": 0.0}, r"options.every_s is 0\.0"),
        ({"v_max_m_s": -1.0}, r"options.v_max_m_s is -1\.0"),
        ({"good": ""}, "expected two sentences"),
        ({"infraction": -1.0}, "options.infraction is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(change, text):
    with pytest.raises(GantryError, match=text):
        LanguageCfg(**change)


def test_options_of_the_command_line_reach_the_settings():
    cfg = set_fields(DriveCfg(), [("reward.kind", "language"), ("reward.options.every_s", "0.5")])
    reward = make_reward(cfg.reward, 2, DT_S, 60.0)
    assert reward.every_steps == 5
    with pytest.raises(GantryError, match=r"env\.reward\.options 'evry_s'\. Did you mean 'every_s'"):
        make_reward(replace(cfg.reward, options={"evry_s": 0.5}), 2, DT_S, 60.0)


KIND, CLIP, NOWHERE = "env.reward.kind=language", "env.reward.options.scorer=clip", "env.reward.options.path=nowhere"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ((NOWHERE, CLIP, KIND), "There is no folder 'nowhere' with a CLIP model"),
        ((KIND, CLIP, NOWHERE), "There is no folder 'nowhere' with a CLIP model"),
        ((KIND, NOWHERE), "There is no small scorer 'nowhere'"),
        ((KIND, CLIP), "Error: env.reward.options.path is empty, expected the folder of a CLIP model"),
    ],
)
def test_what_cannot_work_is_found_before_anything_is_written(capsys, tmp_path, changes, text):
    sets = [word for change in changes for word in ("--set", change)]
    code = main(["train", "drive-lane", "--run-dir", "run", *sets])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err
    assert not list(tmp_path.iterdir())


def test_cars_in_traffic_are_paid_by_what_their_pictures_look_like():
    env = DriveEnv(TALKED, seed=1)
    assert env.observe()["critic"].shape[1] == DriveEnv(replace(TALKED, reward=RewardCfg()), seed=1).observe()[
        "critic"
    ].shape[1] - (7 - 3)
    for _ in range(12):
        reward = env.step(torch.tensor([[0.0, 0.3]]).expand(4, 2)).reward
        assert ((reward >= 0.0) & (reward <= 1.0) | (reward == -10.0)).all()
    assert set(env.factors) == set(LANGUAGE_FACTORS)
    product = torch.stack([env.factors[name] for name in LANGUAGE_FACTORS if name != "clear"]).prod(dim=0)
    torch.testing.assert_close(reward, torch.where(reward < 0.0, reward, product))
    twin = DriveEnv(TALKED, seed=2)
    twin.restore_training_state(env.training_state())
    again = [both.step(torch.zeros(4, 2)).reward for both in (env, twin)]
    assert torch.equal(*again)


def test_the_scorer_is_wanted_for_training_alone(tmp_path):
    """With a scorer that is not there, everything but a step of training works."""
    gone = replace(TALKED, reward=RewardCfg(kind="language", options={"path": str(tmp_path / "gone")}))
    env = DriveEnv(gone, seed=1)
    env.reset()
    with pytest.raises(GantryError, match="no small scorer"):
        env.step(torch.zeros(4, 2))
    DriveEnv(held_out(gone, num_envs=2, map_count=2), seed=1).step(torch.zeros(2, 2))


@pytest.mark.soak
def test_nothing_of_the_scorer_is_in_a_bundle(tmp_path):
    """Trained with it, and evaluated and exported without its file: a bundle as any other."""
    scorer = tmp_path / "scorer.safetensors"
    scorer.write_bytes(SMALL_FILE.read_bytes())
    task = find_task("drive-traffic")
    preset = task.preset("cpu")
    reward = RewardCfg(kind="language", options={"path": str(scorer)})
    learner = replace(preset.learner, total_steps=64, steps_per_env=16, epochs=1, hidden=(16,), critic_hidden=(16,))
    cfg = RunCfg(task, "cpu", replace(preset, env=replace(TALKED, reward=reward), learner=learner), "cpu", 1, 1)
    folder = create_run(cfg, tmp_path / "run")
    trainer, _ = train(cfg, folder)
    scorer.unlink()
    opened, trained = open_trained(folder)
    exported = export_run(opened, folder, trained)
    weights = [values.numpy().tobytes() for values in load_file(SMALL_FILE).values()]
    assert all(len(weight) >= 32 for weight in weights)
    files = {path.name: path.read_bytes() for path in exported.rglob("*") if path.is_file()}
    assert {"policy.onnx", "golden.npz"} <= set(files)
    assert not any(weight in data for weight in weights for data in files.values())
    bundle = load_bundle(exported)
    assert BAD_GOAL not in bundle.contract.to_json()
    graph = onnx.load_from_string(bundle.model_bytes).graph
    held = sum(math.prod(part.dims) for part in graph.initializer)
    # The actor's own numbers, mean and spread of what it sees, and a few constants; the scorer has sixteen thousand.
    more = held - sum(values.numel() for values in trainer.alg.actor.parameters())
    assert 0 <= more < 50 + 2 * bundle.contract.observation_size
