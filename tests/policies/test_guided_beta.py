"""A teacher of a Beta policy: the loss of means by hand, what it leaves alone, and how guidance fades."""

import pytest
import torch
from tensordict import TensorDict

from gantry_hardware.errors import UnknownNameError
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.teacher_protocol import Guidance, ScriptedTeacher
from gantry_policies.on_policy.teachers import PolicyTeacher
from gantry_policies.on_policy.trainer import PpoTrainer


@pytest.fixture
def make(toy_class):
    """``make(teacher=..., **learner)`` gives a runner of a Beta policy on a toy whose expert goes home."""

    class Guided(toy_class):
        def expert_action(self):
            return (-self.pos).clamp(-1.0, 1.0)

    def build(teacher=None, num_envs=8, total_steps=800, **learner):
        torch.manual_seed(1)
        guide = {"action_loss": "mean", "embedding_weight": 0.0, "imitation_iterations": 3}
        fields = {
            "steps_per_env": 10,
            "minibatches": 1,
            "epochs": 1,
            "hidden": (16,),
            "critic_hidden": (16,),
            "distribution": "beta",
            "mirror": "none",
            "guide": ImitationCfg(**guide | learner.pop("guide", {})),
        }
        cfg = PpoCfg(total_steps=total_steps, **(fields | learner))
        env = Guided(num_envs)
        return PpoTrainer(env, cfg, None, "cpu", None, 1, None, teacher or ScriptedTeacher(env.expert_action))

    return build


def losses(runner):
    runner._collect(runner.env.get_observations())
    return runner.alg.update()


def test_the_loss_of_means_by_hand(make):
    """A head of zeros has mean 0: a teacher at (0.3, -1) costs 0.09 + 1, and the end of the range is no pole."""
    runner = make(lambda obs: Guidance(torch.tensor([0.3, -1.0]).expand(len(obs), 2)), last_layer_scale=0.0)
    assert losses(runner)["imitation"] == pytest.approx(1.09, abs=1e-6)


@pytest.mark.parametrize("kind", ["mean", "likelihood"])
def test_a_teacher_that_says_what_the_student_does(make, kind):
    """By the mean it costs and changes nothing; by the likelihood it makes the student vary less and less."""
    runner = make(guide={"action_loss": kind, "action_weight": 1.0}, last_layer_scale=1.0, epochs=5)
    student = runner.alg.actor
    runner.alg.teacher = lambda obs: Guidance(student(obs).detach())
    obs = runner.env.get_observations()

    def spread():
        runner.alg.act(obs)
        return student.output_std.detach().clone()

    before, mean = spread(), student(obs).detach()
    found = losses(runner)["imitation"]
    if kind == "mean":
        assert found < 1e-3  # In later epochs of an update the student has moved on from what the teacher said.
        torch.testing.assert_close(spread(), before, atol=1e-3, rtol=0.0)
        torch.testing.assert_close(student(obs).detach(), mean, atol=1e-3, rtol=0.0)
    else:
        assert (spread() < before - 1e-3).all()


def test_a_student_follows_its_teacher(make):
    guide = {"action_weight": 1.0, "imitation_iterations": 40, "imitation_learning_rate": 3e-3}
    runner = make(num_envs=64, total_steps=40 * 640, epochs=5, guide=guide)
    obs = runner.env.get_observations()
    before = (runner.alg.actor(obs) - runner.env.expert_action()).detach().norm(dim=-1).mean()
    runner.train()
    obs = runner.env.get_observations()
    assert (runner.alg.actor(obs) - runner.env.expert_action()).detach().norm(dim=-1).mean() < 0.3 * before


def test_guidance_fades_after_the_imitation(make):
    guide = ImitationCfg(imitation_iterations=2, fade_iterations=4)
    assert [guide.share_at(i) for i in range(8)] == [1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert ImitationCfg(imitation_iterations=2).share_at(1000) == 1.0
    runner, shares = make(guide={"imitation_iterations": 2, "fade_iterations": 4}), []
    runner.train(lambda progress: shares.append(runner.alg.share))
    assert shares == [1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0]


def test_a_faded_teacher_says_nothing_to_the_actor(make):
    """With weights at 0 and a teacher that is always wrong, learning is what it is under another one."""
    ends = []
    for answer in (1.0, -1.0):
        runner = make(lambda obs, answer=answer: Guidance(torch.full((len(obs), 2), answer)))
        runner.alg.begin_iteration(0)
        runner.alg.share, runner.alg.imitating = 0.0, False
        losses(runner)
        ends.append(torch.cat([values.detach().flatten() for values in runner.alg.actor.parameters()]))
    assert torch.equal(*ends)


def test_a_teacher_reads_the_columns_it_was_trained_on(make):
    actor = make().alg.actor
    obs = TensorDict({"wide": torch.randn(5, 4)}, batch_size=[5])
    teacher = PolicyTeacher(actor, "wide", torch.tensor([3, 0]))
    own = TensorDict({"actor": obs["wide"][:, [3, 0]]}, batch_size=[5])
    with torch.no_grad():
        assert torch.equal(teacher(obs).actions, actor(own))
    with pytest.raises(UnknownNameError, match="teacher"):
        PolicyTeacher(actor)(obs)


def test_a_scripted_teacher_is_asked_in_the_state_that_it_answers_for(make):
    """Its answers are those of every step of the rollout, step by step, whatever the environment's state is later."""
    runner, seen = make(), []
    ask = runner.alg.teacher.expert_action
    runner.alg.teacher.expert_action = lambda: seen.append(ask().clone()) or seen[-1]
    runner._collect(runner.env.get_observations())
    assert len(seen) == 10
    torch.testing.assert_close(runner.alg._ask().actions, torch.cat(seen))
    assert not torch.equal(seen[0], seen[-1])
