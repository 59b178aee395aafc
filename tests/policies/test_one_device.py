"""Learners and networks on the device ``meta``: what would wait for a GPU is on a list, and nothing is on the CPU."""

from dataclasses import replace

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch.utils._pytree import tree_leaves

from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.observations.mirrors import MirrorMap
from gantry_fixtures import allowed_waits
from gantry_fixtures.one_device import META, Allowed, Numbers, device_in_place, on_device, watched
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import Chunks
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.networks import AmeCfg, ObservationLayout
from gantry_policies.networks.layout import TermSlice
from gantry_policies.off_policy import presets
from gantry_policies.off_policy.learner import Learner
from gantry_policies.off_policy.replay.buffer import ReplayBuffer
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.teacher_protocol import Guidance
from gantry_policies.on_policy.trainer import PpoTrainer

ENVS = 8
MIRROR = {name: MirrorMap.signs(1, -1, *(1,) * more) for name, more in (("critic", 1), ("action", 0))}
WINDOW = MapWindow(3, 4, 0.5, 0.0, 0.0, ("elevation",))
LAYOUT = ObservationLayout((TermSlice("goal_command", 0, 2), TermSlice("elevation_map", 2, 12)), WINDOW)
SIZES = AmeCfg(4, (2, 3), 3, 8, 2, 4, 6, (8,))
REPLAY = (
    Allowed("replay/buffer.py:add", "whose frame is stored anew, and how far the ring is filled"),
    Allowed(
        "replay/buffer.py:_draw",
        "slots that hold no transition are drawn again, so that batches are whole",
        answer=False,
    ),
)


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


OFF_POLICY = {
    "sac": presets.sac,
    "rlpd": presets.rlpd,
    "corrections": presets.hil_weighted,
    "residual": presets.resfit,
    "corrections by pictures": presets.hil_images_gpu,
}


@pytest.mark.parametrize("name", OFF_POLICY)
def test_the_replay_buffer_and_an_off_policy_update(name):
    cfg = OFF_POLICY[name]().agent
    shapes = {"state": (6,)} | ({"image.front": (3, 64, 64)} if "pictures" in name else {})
    base = {"base_action": torch.zeros(4, 3, device=META)} if cfg.actor.residual else {}
    with device_in_place():
        with watched(numbers=Numbers()):
            learner = Learner(replace(cfg, batch_size=8), shapes, 3, META)
            replay, demos = (ReplayBuffer(64, 4, shapes, 3, bool(base), META) for _ in "12")
            obs = {
                key: torch.zeros(4, *shape, device=META, dtype=torch.float32 if key == "state" else torch.uint8)
                for key, shape in shapes.items()
            }
        no = torch.zeros(4, dtype=torch.bool, device=META)
        with watched(REPLAY) as watch:
            acted = learner.act(obs, base.get("base_action"), explore=True)
            more = {**base, **{f"next_{key}": value for key, value in base.items()}}
            for buffer in (replay, demos):
                buffer.add(obs, acted, acted[:, 0], obs, no, no, is_intervention=no, **more)
            replay._touched = demos._touched = 2
            learner.update(replay, demos)
            learner.update_critic(replay, demos)
            metrics = learner.pretrain(demos, 1.0)
    assert watch.refused == []
    assert watch.used == set(REPLAY)
    assert all(on_device(value) for value in metrics.values())


@pytest.mark.parametrize("kind", ["mlp", "transformer", "flow"])
def test_a_step_of_cloning(kind):
    cfg = BcCfg()
    cfg = replace(cfg, network=replace(cfg.network, kind=kind))
    shapes = {"state": (6,), "image.front": (3, 64, 64)}
    with device_in_place():
        with watched(numbers=Numbers()):
            policy = BcPolicy(cfg, shapes, 3).to(META)
            optimizer = torch.optim.AdamW(policy.parameters())
            obs = {
                "state": torch.zeros(4, 6, device=META),
                "image.front": torch.zeros(4, 3, 64, 64, dtype=torch.uint8, device=META),
            }
            action = torch.zeros(4, cfg.chunk_steps, 3, device=META)
            chunks = Chunks(obs, action, torch.ones(4, cfg.chunk_steps, dtype=torch.bool, device=META))
        with watched() as watch:
            losses = policy.losses(chunks)
            losses["loss"].backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
    assert watch.refused == []
    assert all(on_device(leaf) for leaf in tree_leaves(losses))
