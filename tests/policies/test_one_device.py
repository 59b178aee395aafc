"""Learners and networks on the device ``meta``: what would wait for a GPU is on a list, and nothing is on the CPU."""

from dataclasses import replace

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.observations.mirrors import MirrorMap
from gantry_fixtures import allowed_waits
from gantry_fixtures.one_device import META, Numbers, device_in_place, on_device, watched
from gantry_mapping.elevation.grid import LOCAL_GRID_SMALL
from gantry_mapping.learn.samples import Frames
from gantry_mapping.learn.train import MapTrainer, TrainCfg
from gantry_mapping.learn.unet import NETWORKS
from gantry_policies.common.batched_env import EnvStep
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import ChunkData
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.imitation.trainer import CloningTrainer
from gantry_policies.networks import AmeCfg, ObservationLayout
from gantry_policies.networks.layout import TermSlice
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.replay.demos import Demo
from gantry_policies.off_policy.trainer import OffPolicyTrainer
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.teacher_protocol import Guidance
from gantry_policies.on_policy.trainer import PpoTrainer

ENVS = 8
MIRROR = {name: MirrorMap.signs(1, -1, *(1,) * more) for name, more in (("critic", 1), ("action", 0))}
WINDOW = MapWindow(3, 4, 0.5, 0.0, 0.0, ("elevation",))
LAYOUT = ObservationLayout((TermSlice("goal_command", 0, 2), TermSlice("elevation_map", 2, 12)), WINDOW)
SIZES = AmeCfg(4, (2, 3), 3, 8, 2, 4, 6, (8,))


class Toy(VecEnv):
    """Points that are pushed about."""

    def __init__(self):
        self.num_envs, self.num_actions, self.device, self.cfg = ENVS, 2, META, {}
        self.max_episode_length = 12
        self.pos = torch.zeros(ENVS, 2, device=META)
        self.episode_length_buf = torch.zeros(ENVS, dtype=torch.long, device=META)

    def get_observations(self):
        seen = torch.cat((self.pos, torch.zeros(ENVS, 12, device=META)), dim=-1)
        critic = torch.cat((self.pos, self.pos[:, :1]), dim=-1)
        return TensorDict(
            {"actor": seen, "critic": critic, "teacher": self.pos.clone()}, batch_size=[ENVS], device=META
        )

    def step(self, actions):
        self.pos = self.pos + actions
        ends = self.pos[:, 0] > 1.0
        return self.get_observations(), self.pos.sum(-1), ends.long(), {"time_outs": ends}

    def step_metrics(self):
        return {"distance_m": self.pos.norm(dim=-1).mean()}

    def training_state(self):
        return {}

    def restore_training_state(self, state):
        pass


class Answers:
    """A teacher."""

    def __call__(self, observations):
        return Guidance(-observations["teacher"])


def trainer(mirror=MIRROR, teacher=None, **learner):
    fields = {
        "total_steps": 6 * ENVS * 4,
        "steps_per_env": 4,
        "minibatches": 2,
        "hidden": (16,),
        "critic_hidden": (16,),
    }
    cfg = PpoCfg(**(fields | {"mirror": "critic"} | learner))
    return PpoTrainer(Toy(), cfg, None, META, mirror, 1, LAYOUT, teacher)


GUIDED = {"teacher": Answers(), "network": "ame2", "ame": SIZES}
LEARNERS = {
    "ppo": {},
    "ppo of the gpu presets": {"desired_kl": 0.01, "clip_value_loss": True},
    "ppo of a Beta": {"distribution": "beta", "desired_kl": 0.01},
    "ppo in chunks": {"chunk_rows": 4},
    "ame2 and experts": {"network": "ame2", "ame": SIZES, "critic_network": "moe", "desired_kl": 0.01},
    "ame1": {"network": "ame1", "ame": SIZES},
    "scan": {"network": "scan_mlp", "ame": SIZES},
    "imitating": {**GUIDED, "guide": ImitationCfg(imitation_iterations=3)},
    "driven by a teacher": {**GUIDED, "guide": ImitationCfg(imitation_iterations=3, teacher_action_fraction=0.5)},
    "dagger": {**GUIDED, "guide": ImitationCfg(imitation_iterations=3, aggregate_rollouts=2)},
    "guided": {**GUIDED, "guide": ImitationCfg(imitation_iterations=0, action_loss="reverse-kl")},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_an_iteration_of_ppo(name):
    with device_in_place():
        with watched(numbers=Numbers()):
            runner = trainer(**LEARNERS[name])
            obs = runner.env.get_observations()
        with watched(allowed_waits.PPO) as watch:
            obs, metrics = runner._iterate(obs)
    assert watch.refused == []
    assert watch.found, "a log reads numbers, so something has to be found"
    assert all(on_device(leaf) for leaf in obs.values())
    assert all(parameter.device.type == META for parameter in runner.alg._parameters)
    assert metrics["loss_value"] is not None


LEARNERS_BY_TRYING = (
    *("sac", "rlpd", "wsrl", "co_rft", "hil_serl", "hil_weighted", "hil_images_gpu", "hil_residual"),
    *("dagger", "resfit", "resfit_images", "resfit_paper"),
)
PICTURES = {"hil_images_gpu", "resfit_images", "resfit_paper"}


def shapes_of(name):
    return {"state": (6,)} | ({"image/front": (3, 64, 64)} if name in PICTURES else {})


def observations(shapes, count, device=META):
    types = {True: torch.uint8, False: torch.float32}
    return {
        key: torch.zeros(count, *shape, dtype=types[key.startswith("image/")], device=device)
        for key, shape in shapes.items()
    }


class Still:
    """Environments in which nothing happens, as :class:`BatchedEnv`."""

    action_size, dt_s, device, num_envs, max_episode_steps = 3, 0.1, META, 4, 20

    def __init__(self, obs_shapes):
        self.obs_shapes = obs_shapes

    def reset(self):
        return observations(self.obs_shapes, self.num_envs)

    def step(self, action):
        no = torch.zeros(self.num_envs, dtype=torch.bool, device=META)
        return EnvStep(self.reset(), self.reset(), action[:, 0], no, no, no)


class Base:
    """A base policy in which nothing happens."""

    num_envs = 4

    def act(self, obs):
        return torch.zeros(len(obs["state"]), 3, device=META)

    def peek(self, obs, env_ids):
        return self.act(obs)

    def reset(self, env_ids=None):
        pass


def learning_by_trying(name):
    """The trainer of a preset with small batches, and the base that it needs."""
    cfg, shapes = getattr(presets, name)(), shapes_of(name)
    is_offline = cfg.total_steps == 0
    cfg = replace(cfg, agent=replace(cfg.agent, batch_size=8), capacity=64, pretrain_updates=int(is_offline))
    clone, demos = None, []
    if is_offline:
        demos = [Demo(observations(shapes, 5), torch.zeros(5, 3, device=META), torch.zeros(5, device=META))]
        clone = BcPolicy(replace(BcCfg(), chunk_steps=cfg.agent.chunk_steps), shapes, 3).to(META)
    base = Base() if cfg.agent.actor.residual else None
    return OffPolicyTrainer(Still(shapes), cfg, base=base, demos=demos, clone=clone, device=META)


@pytest.mark.parametrize("name", LEARNERS_BY_TRYING)
def test_a_step_and_the_updates_of_an_off_policy_training(name):
    """With the trainer's own way of learning, and what it collects by."""
    with device_in_place():
        with watched(numbers=Numbers()):
            trainer = learning_by_trying(name)
            trainer.collector.reset()
        learner, replay, allowed = trainer.learner, trainer.replay, allowed_waits.REPLAY
        if not learner.cfg.chunk_steps:
            allowed += (*allowed_waits.COLLECTING, *(allowed_waits.BASE if trainer.collector.base else ()))
        with watched(allowed) as watch:
            if learner.cfg.chunk_steps:
                obs, no = observations(shapes_of(name), 4), torch.zeros(4, dtype=torch.bool, device=META)
                replay.add(obs, torch.zeros(4, 3, device=META), torch.zeros(4, device=META), obs, no, no)
            else:
                trainer.collector.step()
            replay._touched = 12
            demos = replay if learner.cfg.demo_fraction else None
            found = [
                trainer._learn(lambda: learner.update(replay, demos)),
                trainer._learn(lambda: learner.update_critic(replay, demos)),
                trainer._learn(lambda: learner.pretrain(replay, 1.0)),
            ]
    assert watch.refused == []
    assert watch.used == set(allowed)
    assert all(on_device(value) for metrics in found for value in metrics.values())
    with watched() as watch:
        trainer._losses.require_finite()
    assert len(watch.found) == 1, "losses of all updates are read at once"


@pytest.mark.parametrize(("kind", "where"), [("mlp", "cpu"), ("mlp", META), ("transformer", META), ("flow", META)])
def test_an_update_of_cloning(kind, where):
    """From demonstrations in the memory of the CPU, as the commands hold them, and of the device."""
    cfg = BcCfg()
    cfg = replace(cfg, network=replace(cfg.network, kind=kind), batch_size=4, state_noise=0.1)
    with device_in_place():
        with watched(numbers=Numbers()):
            data = ChunkData(
                observations({"state": (6,), "image/front": (3, 64, 64)}, 20, "cpu"), torch.zeros(20, 3), [20]
            )
            trainer = CloningTrainer(data.to(where), cfg, device=META)
        allowed = (allowed_waits.CLONING, allowed_waits.CLONING_FROM_CPU)[where == "cpu"]
        with watched(allowed) as watch:
            trainer._update()
    assert watch.refused == []
    assert watch.used == set(allowed)
    assert trainer.step == 1
    assert all(on_device(value) for value in trainer._sums.values())


@pytest.mark.parametrize("network", NETWORKS)
def test_an_update_of_the_mapping_network(network, tmp_path):
    """Its frames are made on the CPU, so that batches that are made already are moved."""
    with device_in_place():
        with watched(numbers=Numbers()):
            trainer = MapTrainer(TrainCfg(network=network, distinct_batches=1), tmp_path)
            trainer.net.to(META)
            rows, columns = LOCAL_GRID_SMALL.shape
            trainer._made[0] = Frames(*(torch.zeros(4, 1, rows, columns, device=META) for _ in "12"))
        with watched() as watch:
            loss = trainer._update()
    assert watch.found == []
    assert on_device(loss)
    assert trainer.step == 1
