"""Networks that look at a picture from above: sizes, what they see, rollouts as bytes, and their export."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import nn

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.observations.builder import make_term
from gantry_deploy.policy.onnx_policy import OnnxPolicy
from gantry_fixtures.drive import drive_contract_for
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_policies.common.export import onnx_bytes
from gantry_policies.common.recorded_rows import require_same
from gantry_policies.networks import BevNetCfg, ObservationLayout
from gantry_policies.networks.bev import BevEncoder, strides
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.packing import RasterPacking
from gantry_policies.on_policy.teacher_protocol import Guidance
from gantry_policies.on_policy.teachers import PolicyTeacher, make_actor
from gantry_policies.on_policy.trainer import PpoTrainer

TINY = BevNetCfg(first_channels=2, most_channels=4, rest=(8,), both=(16,))


def contract(pixels=8, channels=("road",)):
    """Speed, the raster, and the last action."""
    base = drive_contract_for(robot_spec("bmw_320i"))
    assert base.body is not None
    bev = BevLayout(pixels, behind_m=2.0, channels=channels)
    terms = (make_term("speed", 1), make_term("bev", bev.size, scale=1.0 / 255.0), make_term("last_action", 2))
    return replace(base, body=replace(base.body, bev=bev), observations=terms)


def layout(pixels=8, channels=("road",)):
    return ObservationLayout.from_contract(contract(pixels, channels))


class Pictures(VecEnv):
    """A lit row says which action is right; nothing else does, and every step is an episode's last."""

    def __init__(self, num_envs=16):
        self.num_envs, self.num_actions, self.device, self.cfg = num_envs, 2, "cpu", {}
        self.max_episode_length, self.episode_length_buf = 1, torch.zeros(num_envs)
        self.drawn = torch.Generator().manual_seed(0)
        self.row = torch.zeros(num_envs, dtype=torch.int64)

    def get_observations(self):
        picture = torch.zeros(self.num_envs, 8, 8)
        picture[torch.arange(self.num_envs), self.row] = 200 * torch.tensor(1.0 / 255.0)
        flat = torch.cat((torch.ones(self.num_envs, 1), picture.flatten(1), torch.zeros(self.num_envs, 2)), dim=1)
        return TensorDict({"actor": flat, "critic": torch.ones(self.num_envs, 3)}, batch_size=[self.num_envs])

    def step(self, actions):
        reward = -(actions[:, 0] - (self.row - 3.5) / 4.0).square()
        self.row = torch.randint(0, 8, (self.num_envs,), generator=self.drawn)
        return self.get_observations(), reward, torch.ones(self.num_envs), {}

    def step_metrics(self):
        return {}

    def training_state(self):
        return {}

    def restore_training_state(self, state):
        pass


def runner(**learner):
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "total_steps": 16 * 8 * 40,
        "minibatches": 2,
        "steps_per_env": 8,
        "learning_rate": 5e-3,
        "network": "bev",
        "critic_network": "bev",
        "bev": TINY,
        "hidden": (16,),
        "critic_hidden": (16,),
        "distribution": "beta",
    } | learner
    teacher = options.pop("teacher", None)
    return PpoTrainer(Pictures(), PpoCfg(**options), None, "cpu", None, 1, layout(), teacher)


def test_convolutions_are_carls_at_its_size_and_fewer_at_smaller_ones():
    assert strides(256) == [(5, 2), (5, 2), (5, 2), (5, 2), (3, 2), (3, 1), (3, 1)]
    names = ("road", "route", "markings", "vehicles", "pedestrians", "stop_line", "static", "speed_limit")
    encoder = BevEncoder(layout(256, names), BevNetCfg())
    sizes = [tuple(part.normalized_shape) for part in encoder.picture if isinstance(part, nn.LayerNorm)]
    assert [size[1] for size in sizes] == [126, 61, 29, 13, 6, 4, 2]
    assert [size[0] for size in sizes] == [8, 16, 32, 64, 128, 256, 256]
    for pixels in (8, 31, 64, 96, 128):
        found = BevEncoder(layout(pixels), TINY)(torch.zeros(2, layout(pixels).size))
        assert found.latent.shape == (2, 16)


def test_the_raster_is_found_among_the_terms_and_the_rest_beside_it():
    flat = torch.arange(2.0 * layout().size).reshape(2, -1)
    np.testing.assert_array_equal(layout().raster(flat)[0, 0], np.arange(1.0, 65.0).reshape(8, 8))
    np.testing.assert_array_equal(layout().all_but_raster(flat)[0], [0.0, 65.0, 66.0])
    plain = replace(contract(), observations=(make_term("speed", 1),))
    with pytest.raises(GantryError, match="bev"):
        ObservationLayout.from_contract(plain).require_raster()
    with pytest.raises(GantryError, match="raster"):
        ObservationLayout.from_contract(replace(contract(), observations=(make_term("bev", 63),)))


def test_rollouts_keep_rasters_as_bytes_and_give_them_back_to_the_bit():
    flat = torch.rand(3, 5, 10)
    flat[..., 2:8] = torch.randint(0, 256, (3, 5, 6)) * torch.tensor(1.0 / 255.0)
    packing = RasterPacking("actor", 2, 8)
    whole = TensorDict({"actor": flat, "critic": torch.rand(3, 5, 2)}, batch_size=[3, 5])
    packed = packing.pack(whole)
    assert packed["raster"].dtype == torch.uint8
    assert packed["raster"].shape == (3, 5, 6)
    back = packing.unpack({name: packed[name] for name in ("actor", "critic", "raster")})
    assert set(back) == {"actor", "critic"}
    assert torch.equal(back["actor"], flat)
    stored = runner().alg.storage.observations
    assert {name: values.dtype for name, values in stored.items()} == {
        "actor": torch.float32,
        "critic": torch.float32,
        "raster": torch.uint8,
    }
    assert stored["actor"].shape == (8, 16, 3)


def test_learning_from_bytes_is_learning_from_floats():
    found = []
    for packed in (True, False):
        learner = runner(chunk_rows=1000)
        if not packed:
            alg = learner.alg
            first = learner.env.get_observations()
            alg._packing = None
            kept = {name: torch.zeros(8, *values.shape) for name, values in first.items()}
            alg.storage.observations = TensorDict(kept, batch_size=[8, 16])
        torch.manual_seed(1)
        learner._collect(learner.env.get_observations())
        learner.alg.update()
        found.append(torch.cat([values.detach().flatten() for values in learner.alg._parameters]))
    torch.testing.assert_close(found[0], found[1], atol=0.0, rtol=0.0)


class SeesItAll:
    """A teacher that notes what it is shown, and answers with the mean of the picture."""

    def __init__(self):
        self.sizes, self.seen = set(), []

    def __call__(self, observations):
        self.sizes.add(tuple(sorted((str(name), row.shape[-1]) for name, row in observations.items())))
        self.seen.append(observations["actor"].clone())
        lit = layout().raster(observations["actor"]).mean((1, 2, 3))
        return Guidance(torch.stack((lit, -lit), dim=1))


@pytest.mark.parametrize("remembered", [0, 3])
def test_a_teacher_is_shown_the_same_picture_while_it_acts_and_while_it_is_asked(remembered):
    """Rollouts keep the raster as bytes beside the rest; neither a teacher nor what is remembered may notice."""
    teacher = SeesItAll()
    guide = ImitationCfg(
        imitation_iterations=4, aggregate_rollouts=remembered, teacher_action_fraction=0.5, embedding_weight=0.0
    )
    learner = runner(teacher=teacher, guide=guide, total_steps=16 * 8 * 3)
    assert learner.train()
    assert len(teacher.sizes) == 1
    assert dict(next(iter(teacher.sizes)))["actor"] == layout().size
    assert set(torch.cat(teacher.seen)[:, 1:65].unique().tolist()) == {0.0, float(200 * torch.tensor(1.0 / 255.0))}
    memory = learner.alg._dagger
    if remembered:
        kept = learner.alg._packing.unpack(memory.observations)["actor"]
        assert torch.equal(teacher(TensorDict({"actor": kept}, [len(kept)])).actions, memory.guidance.actions)
        assert kept.shape == (3 * 16 * 8, layout().size)


def test_a_trained_policy_teaches_through_the_columns_that_it_was_trained_on():
    """The teacher saw one number less, which lies before the raster in what the student sees."""
    seen = replace(contract(), observations=contract().observations[1:])
    cfg = PpoCfg(1, network="bev", critic_network="bev", bev=TINY, hidden=(16,), distribution="beta")
    actor = make_actor(cfg, ObservationLayout.from_contract(seen), 2)
    teacher = PolicyTeacher(actor, "actor", torch.arange(1, layout().size))
    guide = ImitationCfg(imitation_iterations=2, aggregate_rollouts=2, embedding_weight=0.0)
    learner = runner(teacher=teacher, guide=guide, total_steps=16 * 8)
    learner._collect(learner.env.get_observations())
    stored = learner.alg._packing.unpack(dict(learner.alg.storage.observations.flatten(0, 1).items()))
    expected = teacher(TensorDict(stored, [16 * 8])).actions
    assert torch.equal(learner.alg._ask().actions, expected)
    assert torch.isfinite(torch.tensor(list(learner.alg.update().values()))).all()


def test_what_only_the_picture_tells_is_learned():
    """A constant action earns -(63 / 12) / 16 = -0.33 at best."""
    rewards = []
    runner().train(lambda progress: rewards.append(progress.metrics["reward"]))
    assert np.mean(rewards[-5:]) > -0.1


def test_the_exported_network_answers_as_torch_does():
    torch.manual_seed(0)
    learner = PpoCfg(total_steps=1, network="bev", bev=BevNetCfg.small(), hidden=(32,), distribution="beta")
    names = ("road", "vehicles", "route")
    actor = make_actor(learner, layout(64, names), 2).as_onnx(verbose=False).eval()
    rows = torch.rand(20, contract(64, names).observation_size)
    with torch.no_grad():
        expected = actor(rows).numpy()
    assert np.ptp(expected, axis=0).min() > 1e-4
    model = onnx_bytes(actor, contract(64, names), {"observation": rows[:1]})
    require_same(OnnxPolicy(model, contract(64, names)), {"observation": rows}, expected)


def test_networks_that_look_need_something_to_look_at():
    with pytest.raises(GantryError, match="layout"):
        PpoCfg(total_steps=1, network="bev").actor_model(None)
    plain = ObservationLayout.from_contract(replace(contract(), observations=(make_term("speed", 1),)))
    with pytest.raises(GantryError, match="bev"):
        PpoCfg(total_steps=1, critic_network="bev").as_rsl_rl(None, layout=plain)
    refused: tuple[dict[str, Any], ...] = ({"first_channels": 0}, {"rest": ()}, {"both": (0,)})
    for wrong in refused:
        with pytest.raises(GantryError, match=next(iter(wrong))):
            BevNetCfg(**wrong)
