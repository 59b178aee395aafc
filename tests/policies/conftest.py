"""What tests of the learning side share: one thread, and a toy to learn."""

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.trainer import PpoTrainer


@pytest.fixture(autouse=True)
def one_thread(tmp_path, monkeypatch):
    """Small tensors are slower on many threads; and MuJoCo writes its log into the working directory."""
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Toy(VecEnv):
    """Points in the plane that should move to the origin; an action is a step, and nothing is random."""

    def __init__(self, num_envs: int = 8, episode_steps: int = 12) -> None:
        self.num_envs, self.num_actions, self.device, self.cfg = num_envs, 2, "cpu", {}
        self.max_episode_length = episode_steps
        angle = torch.arange(num_envs) * 2.4
        self.start = torch.stack((angle.cos(), angle.sin()), dim=-1)
        self.pos, self.episode_length_buf = self.start.clone(), torch.arange(num_envs) % episode_steps
        self.level = 0
        self.poison = float("inf")
        """Step from which rewards are NaN."""

    def get_observations(self) -> TensorDict:
        critic = torch.cat((self.pos, self.pos.norm(dim=-1, keepdim=True)), dim=-1)
        return TensorDict({"actor": self.pos.clone(), "critic": critic}, batch_size=[self.num_envs])

    def step(self, actions):
        self.level += 1
        self.pos = self.pos + 0.1 * actions
        reward = -self.pos.square().sum(-1)
        if self.level >= self.poison:
            reward = reward * torch.nan
        self.episode_length_buf += 1
        ends = self.episode_length_buf >= self.max_episode_length
        self.pos[ends] = self.start[ends]
        self.episode_length_buf[ends] = 0
        return self.get_observations(), reward, ends.long(), {"time_outs": ends}

    def step_metrics(self):
        return {"distance_m": self.pos.norm(dim=-1).mean()}

    def training_state(self):
        return {"pos": self.pos.clone(), "length": self.episode_length_buf.clone(), "level": self.level}

    def restore_training_state(self, state):
        self.pos, self.episode_length_buf = state["pos"].clone(), state["length"].clone()
        self.level = state["level"]


@pytest.fixture
def toy_class():
    """The toy, to be made into another one."""
    return Toy


@pytest.fixture
def make_runner():
    """``make_runner(run_dir, mirror=..., threads=..., **learner)`` gives a runner on a fresh toy; ``learner_mirror`` is
    the learner's own field ``mirror``."""

    def make(run_dir=None, mirror=None, threads=1, num_envs=8, **learner):
        torch.manual_seed(learner.pop("seed", 1))
        learner |= {"mirror": learner.pop("learner_mirror", "both")}
        fields = {
            "total_steps": 6 * 8 * 10,
            "steps_per_env": 10,
            "minibatches": 2,
            "hidden": (16,),
            "critic_hidden": (16,),
            "learning_rate": 3e-3,
        }
        return PpoTrainer(Toy(num_envs), PpoCfg(**(fields | learner)), run_dir, "cpu", mirror, threads)

    return make
