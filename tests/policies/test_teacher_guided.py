"""A teacher beside the reward: losses by hand, the phases, what is refused, and stopping and resuming."""

import math

import pytest
import torch
from tensordict import TensorDict

from gantry_deploy.contract.policy_contract import MapWindow
from gantry_deploy.observations.mirrors import MirrorMap
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_policies.common.checkpoint import CheckpointError, load_newest
from gantry_policies.imitation.config import BcCfg
from gantry_policies.imitation.data import ChunkData
from gantry_policies.imitation.policy import BcPolicy
from gantry_policies.networks import AmeCfg, ObservationLayout
from gantry_policies.networks.layout import TermSlice
from gantry_policies.on_policy.config import PpoCfg
from gantry_policies.on_policy.guidance import ImitationCfg
from gantry_policies.on_policy.plan_teacher import WholePlans
from gantry_policies.on_policy.teacher_guided import DaggerBuffer, TeacherGuidedPPO
from gantry_policies.on_policy.teacher_protocol import Guidance
from gantry_policies.on_policy.teachers import ClonedTeacher, PolicyTeacher
from gantry_policies.on_policy.trainer import PpoTrainer

WINDOW = MapWindow(3, 4, 0.5, 0.0, 0.0, ("elevation",))
LAYOUT = ObservationLayout((TermSlice("goal_command", 0, 2), TermSlice("elevation_map", 2, 12)), WINDOW)
SIZES = AmeCfg(4, (2, 3), 3, 8, 2, 4, 6, (8,))
CRITIC = {"actor": MirrorMap.signs(1, -1), "critic": MirrorMap.signs(1, -1, 1), "action": MirrorMap.signs(1, -1)}


class Homeward:
    """A script that knows the way: a step of the toy that leads to the origin."""

    def __call__(self, observations):
        return Guidance(-observations["teacher"])


@pytest.fixture
def map_toy(toy_class):
    """The toy with a map that shows how far each cell is from the origin, and a teacher's observation group."""

    class MapToy(toy_class):
        def get_observations(self):
            obs = super().get_observations()
            cells = self.pos[:, None] + LAYOUT.cell_centers()
            seen = torch.cat((self.pos, cells.norm(dim=-1)), dim=-1)
            groups = {"actor": seen, "critic": obs["critic"], "teacher": self.pos.clone()}
            return TensorDict(groups, batch_size=[len(seen)])

    return MapToy


@pytest.fixture
def make(map_toy):
    """``make(run_dir, teacher=..., **learner)`` gives a runner of an AME-2 network on a fresh toy."""

    def build(run_dir=None, teacher=None, threads=1, mirror=None, num_envs=8, seed=1, who="critic", **learner):
        torch.manual_seed(seed)
        fields = {
            "total_steps": 6 * num_envs * 10,
            "steps_per_env": 10,
            "minibatches": 2,
            "hidden": (16,),
            "critic_hidden": (16,),
            "network": "ame2",
            "ame": SIZES,
            "mirror": who,
            "guide": ImitationCfg(imitation_iterations=3),
        }
        cfg = PpoCfg(**(fields | learner))
        return PpoTrainer(map_toy(num_envs), cfg, run_dir, "cpu", mirror, threads, LAYOUT, teacher)

    return build


def weights(runner):
    return torch.cat([values.detach().flatten().clone() for values in runner.alg._parameters])


def test_the_imitation_loss_by_hand(make):
    """One joint pair: mean (0, 0) by a head of zeros, deviation 0.5, teacher (0.3, -0.4)."""

    class Fixed:
        def __call__(self, observations):
            return Guidance(torch.tensor([0.3, -0.4]).expand(len(observations), 2))

    runner = make(teacher=Fixed(), init_std=0.5, last_layer_scale=0.0, epochs=1, minibatches=1)
    runner._collect(runner.env.get_observations())
    losses = runner.alg.update()
    expected = sum(0.5 * (x / 0.5) ** 2 + math.log(0.5) + 0.5 * math.log(2 * math.pi) for x in (0.3, 0.4))
    assert losses["imitation"] == pytest.approx(expected, abs=1e-5)
    assert "embedding" not in losses


def test_the_embedding_loss_by_hand(make):
    """Mean squared distance of each part, summed: parts of the student's embedding moved by 1 and by 2 cost 1 + 4."""
    runner = make(epochs=1, minibatches=1, teacher=Homeward())
    student = runner.alg.actor

    class Moved:
        @torch.no_grad()
        def __call__(self, observations):
            attended, overview = student.encode(observations).embedding
            return Guidance(-observations["teacher"], (attended + 1.0, overview - 2.0))

    runner.alg.teacher = Moved()
    runner._collect(runner.env.get_observations())
    assert runner.alg.update()["embedding"] == pytest.approx(5.0, abs=1e-4)


def gradient_of(runner, names):
    """Norm of the gradient that the last minibatch left in some parameters of the actor."""
    return sum(float(p.grad.norm()) for name, p in runner.alg.actor.named_parameters() if names in name)


@pytest.mark.parametrize("imitating", [True, False])
def test_the_surrogate_waits_until_the_imitation_ends(make, imitating):
    """A teacher that repeats the student leaves no gradient in the mean: what is left comes from the surrogate."""
    runner = make(epochs=1, minibatches=1, teacher=Homeward(), entropy=0.0, guide=ImitationCfg(imitation_iterations=1))
    student = runner.alg.actor

    class Echo:
        @torch.no_grad()
        def __call__(self, observations):
            return Guidance(student(observations))

    runner.alg.teacher = Echo()
    runner._collect(runner.env.get_observations())
    runner.alg.begin_iteration(0 if imitating else 1)
    before = weights(runner)
    runner.alg.update()
    assert (gradient_of(runner, "mlp") < 1e-6) == imitating
    assert sum(float(p.grad.norm()) for p in runner.alg.critic.parameters()) > 1e-3  # the value function learns
    assert not torch.equal(weights(runner), before)


@pytest.mark.parametrize("desired_kl", [None, 0.01])
def test_the_phases_have_their_own_learning_rates(make, desired_kl):
    guide, history = ImitationCfg(imitation_iterations=3, imitation_learning_rate=2e-3), []
    runner = make(teacher=Homeward(), guide=guide, learning_rate=1e-4, desired_kl=desired_kl)
    runner.train(lambda progress: history.append((progress.metrics["learning_rate"], runner.alg.imitating)))
    rates = [rate for rate, _ in history]
    assert [phase for _, phase in history] == [True] * 3 + [False] * 3
    assert rates[:3] == [2e-3] * 3
    if desired_kl is None:
        assert rates[3:] == [1e-4] * 3
    else:  # four epochs of two minibatches, each a factor of 1.5 at most
        assert 1e-4 / 1.5**8 <= rates[3] <= 1e-4 * 1.5**8
        assert rates[3] != 2e-3


def test_the_rate_of_imitation_falls_linearly(make):
    guide, rates = ImitationCfg(imitation_iterations=4, imitation_learning_rate=2e-3, final_imitation_factor=0.2), []
    runner = make(teacher=Homeward(), guide=guide, learning_rate=1e-4, total_steps=5 * 640, num_envs=64)
    runner.train(lambda progress: rates.append(progress.metrics["learning_rate"]))
    assert rates[:4] == pytest.approx([2e-3, 1.6e-3, 1.2e-3, 0.8e-3])
    assert rates[4] == pytest.approx(1e-4)


def test_a_ring_of_rollouts_by_hand():
    """Three rollouts of two samples in a memory of two: the first one is gone, rows keep their answers."""
    memory = DaggerBuffer(2)
    for number in range(3):
        seen = torch.tensor([[2.0 * number], [2.0 * number + 1.0]])
        memory.add({"actor": seen}, Guidance(10.0 * seen, (seen + 0.5,)))
        held = memory.observations["actor"][memory.draw(2)]
        assert held.max() <= 2.0 * number + 1.0
    assert memory.observations["actor"].flatten().tolist() == [4.0, 5.0, 2.0, 3.0]
    assert memory.guidance.actions.flatten().tolist() == [40.0, 50.0, 20.0, 30.0]
    assert memory.guidance.embedding[0].flatten().tolist() == [4.5, 5.5, 2.5, 3.5]
    assert set(torch.cat([memory.draw(2) for _ in range(64)]).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("threads", [1, 2])
def test_what_was_said_earlier_is_imitated_too(make, threads):
    """A teacher of two rollouts says (1, 1), then (0, 0): who remembers both learns their mean, then PPO begins."""

    class Changes:
        said = 1.0

        def __call__(self, observations):
            return Guidance(torch.full((len(observations), 2), self.said))

    teacher = Changes()
    guide = ImitationCfg(1.0, 0.0, imitation_iterations=2, action_loss="mean", aggregate_rollouts=2)
    runner = make(teacher=teacher, threads=threads, guide=guide, epochs=60, init_std=0.01)
    for iteration, expected in enumerate((1.0, 0.5)):
        runner.alg.begin_iteration(iteration)
        runner._collect(runner.env.get_observations())
        assert "surrogate" not in runner.alg.update()
        seen = runner.alg._dagger.observations["actor"][: 80 * (iteration + 1)]
        with torch.no_grad():
            mean = runner.alg.actor(TensorDict({"actor": seen}, batch_size=[len(seen)])).mean().item()
        assert mean == pytest.approx(expected, abs=0.1)
        teacher.said = 0.0
    runner.alg.begin_iteration(2)
    runner._collect(runner.env.get_observations())
    assert "surrogate" in runner.alg.update()
    assert runner.alg._dagger is None


def test_a_student_follows_its_teacher(make):
    guide, history = ImitationCfg(action_weight=1.0, imitation_iterations=20, imitation_learning_rate=3e-3), []
    runner = make(teacher=Homeward(), num_envs=64, total_steps=20 * 640, guide=guide)
    runner.train(history.append)
    assert history[-1].metrics["loss_imitation"] < history[0].metrics["loss_imitation"] - 0.5
    obs = runner.env.get_observations()
    with torch.no_grad():
        error = (runner.alg.actor(obs) + obs["teacher"]).norm(dim=-1).mean()
    assert error < 0.5 * obs["teacher"].norm(dim=-1).mean()


def test_whose_actions_are_taken(make):
    """All of the teacher's at first, none from the end of the imitation on; in between some rows, a rollout long."""
    guide, shares = ImitationCfg(imitation_iterations=3, teacher_action_fraction=1.0), []
    runner = make(teacher=Homeward(), num_envs=64, guide=guide, total_steps=4 * 640)

    def look(progress):
        del progress
        taken = runner.alg.storage.actions == -runner.alg.storage.observations["teacher"]
        rows = taken.all(-1)
        assert torch.equal(rows, rows[:1].expand_as(rows))  # from the first step of a rollout to its last
        shares.append(float(rows[0].float().mean()))

    runner.train(look)
    assert shares[0] == 1.0
    assert 0.4 < shares[1] < 0.9
    assert 0.1 < shares[2] < 0.6
    assert shares[3] == 0.0


def test_a_teacher_that_drives_makes_sense(make):
    guide = ImitationCfg(imitation_iterations=3, teacher_action_fraction=1.0)
    runner = make(teacher=lambda observations: Guidance(torch.zeros(len(observations), 3)), guide=guide)
    with pytest.raises(GantryError, match=r"actions have shape \(8, 3\), expected \(8, 2\)"):
        runner.train()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("embedding", [False, True])
def test_six_iterations_are_three_and_three(make, tmp_path, threads, embedding):
    """Through the change of phase; an adaptive rate, the map's network and a teacher that drives included."""
    teacher = PolicyTeacher(make(seed=7).alg.actor, "actor") if embedding else Homeward()
    options = {"teacher": teacher, "threads": threads, "desired_kl": 0.01, "mirror": CRITIC, "chunk_rows": 16}
    guide = ImitationCfg(imitation_iterations=4, teacher_action_fraction=0.5)
    make(tmp_path / "straight", guide=guide, **options).train()
    first = make(tmp_path / "halves", guide=guide, **options)
    first.train(lambda progress: first.stop() if progress.done == 3 else None)
    second = make(tmp_path / "halves", guide=guide, seed=99, **options)
    assert second.resume().name == "model_3.pt"
    second.train()
    one, other = (load_newest(tmp_path / name / "checkpoints")[1] for name in ("straight", "halves"))
    for group in ("actor_state_dict", "critic_state_dict"):
        assert all(torch.equal(value, other[group][name]) for name, value in one[group].items())
    assert one["optimizer_state_dict"]["param_groups"] == other["optimizer_state_dict"]["param_groups"]


def test_a_checkpoint_becomes_a_teacher(make, tmp_path):
    runner = make(tmp_path)
    runner.train()
    path, _ = load_newest(tmp_path / "checkpoints")
    teacher = PolicyTeacher.from_checkpoint(path, runner.ppo_cfg, LAYOUT, 2, group="actor")
    obs = runner.env.get_observations()
    found = teacher(obs)
    with torch.no_grad():
        assert torch.equal(found.actions, runner.alg.actor(obs))
        expected = runner.alg.actor.encode(obs).embedding
    assert [part.shape[1] for part in found.embedding] == [8, 4]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found.embedding, expected, strict=True))
    assert not any(values.requires_grad for values in teacher.actor.parameters())
    other = PpoCfg(total_steps=1, network="ame1", ame=SIZES, hidden=(16,))
    with pytest.raises(CheckpointError, match="does not hold this teacher's network: of its weights, '"):
        PolicyTeacher.from_checkpoint(path, other, LAYOUT, 2)
    with pytest.raises(UnknownNameError, match=r"actr.*Did you mean 'actor'"):
        PolicyTeacher(teacher.actor, "actr")(obs)


def test_a_mirrored_student_has_a_mirrored_teacher(make):
    """The mean is (0, -0.5) by the bias alone. Of 80 rows the first 40 of the shuffled minibatch are mirrored, and
    there the teacher's lateral step changes sign."""
    maps = {"actor": MirrorMap.signs(*([1.0] * 14)), "action": MirrorMap.signs(1, -1)}
    one = {"minibatches": 1, "epochs": 1, "last_layer_scale": 0.0, "init_std": 1.0}
    runner = make(teacher=Homeward(), mirror=maps | {"critic": MirrorMap.signs(1, -1, 1)}, who="both", **one)
    runner._collect(runner.env.get_observations())
    with torch.no_grad():
        runner.alg.actor.mlp[-1].bias[1] = -0.5
    state = torch.get_rng_state()
    rows = next(runner.alg._minibatches())
    torch.set_rng_state(state)
    steps = -runner.alg.storage.observations["teacher"].flatten(0, 1)[rows]
    steps[:40, 1] *= -1
    expected = 0.5 * (steps - torch.tensor([0.0, -0.5])).square().sum(-1).mean() + math.log(2 * math.pi)
    assert runner.alg.update()["imitation"] == pytest.approx(float(expected), abs=1e-5)


def test_remembered_rows_are_mirrored_with_their_answers(make):
    """A teacher that answers what it is shown: after the mirror the answers are still what remembered rows show."""
    maps = CRITIC | {"actor": MirrorMap.signs(*([1.0, -1.0] * 7))}
    guide = ImitationCfg(1.0, 0.0, imitation_iterations=2, aggregate_rollouts=2)

    class Echoes:
        def __call__(self, observations):
            return Guidance(observations["actor"][:, :2].clone())

    runner = make(teacher=Echoes(), mirror=maps, who="both", guide=guide)
    alg, batches = runner.alg, []
    gather = alg._gather
    alg._gather = lambda rows: batches.append(gather(rows)) or batches[-1]
    runner._collect(runner.env.get_observations())
    alg.update()
    assert batches
    for batch in batches:
        torch.testing.assert_close(batch.teacher_actions, batch.remembered["actor"][:, :2])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Guidance(torch.zeros(80, 3)), r"actions have shape \(80, 3\), expected \(80, 2\)"),
        (Guidance(torch.full((80, 2), torch.nan)), "not all finite"),
        (Guidance(torch.zeros(80, 2), (torch.zeros(80, 5),)), r"widths \[5\], the student's has \[8, 4\]"),
    ],
)
def test_answers_that_make_no_sense_are_refused(make, answer, text):
    runner = make(teacher=lambda observations: answer)
    with pytest.raises(GantryError, match=text):
        runner.train()


def test_representations_have_no_mirror_image(make):
    maps = CRITIC | {"actor": MirrorMap.signs(*([1.0] * 14))}
    options = {"teacher": PolicyTeacher(make(seed=7).alg.actor, "actor"), "mirror": maps, "who": "both"}
    with pytest.raises(GantryError, match="an embedding has no mirror image"):
        make(**options).train()
    assert make(**options, guide=ImitationCfg(embedding_weight=0.0)).train()
    assert make(**(options | {"who": "critic"})).train()


def test_a_learner_without_a_teacher_is_the_plain_one(make):
    assert not isinstance(make().alg, TeacherGuidedPPO)
    assert isinstance(make(teacher=Homeward()).alg, TeacherGuidedPPO)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"action_weight": -1.0}, "guide.action_weight is -1.0"),
        ({"action_weight": 0.0, "embedding_weight": 0.0}, "both weights at 0"),
        ({"imitation_iterations": -1}, "imitation_iterations is -1"),
        ({"imitation_learning_rate": 0.0}, "imitation_learning_rate is 0.0"),
        ({"final_imitation_factor": 0.0}, "final_imitation_factor is 0.0, expected more than 0 and at most 1"),
        ({"teacher_action_fraction": 1.5}, "teacher_action_fraction is 1.5, expected 0 to 1"),
        ({"teacher_action_fraction": math.nan}, "teacher_action_fraction is nan"),
        ({"aggregate_rollouts": -1}, "aggregate_rollouts is -1, expected >= 0"),
        ({"fade_iterations": -2}, "fade_iterations is -2"),
        ({"action_loss": "meen"}, "meen.*Did you mean 'mean'"),
    ],
)
def test_guides_that_make_no_sense_are_refused(change, text):
    with pytest.raises(GantryError, match=text):
        ImitationCfg(**change)


def test_a_clone_teaches_the_first_action_of_its_plan():
    torch.manual_seed(0)
    policy = BcPolicy(BcCfg(chunk_steps=3, execute_steps=1), {"state": (2,)}, 1)
    policy.fit(ChunkData({"state": torch.randn(20, 2)}, torch.rand(20, 1) - 0.5, [20]))
    seen = torch.randn(5, 4)
    teacher = ClonedTeacher(policy, "actor", torch.tensor([3, 0]))
    guidance = teacher(TensorDict({"actor": seen}, batch_size=[5]))
    assert torch.equal(guidance.actions, policy({"state": seen[:, [3, 0]]})[:, 0])
    assert not guidance.actions.requires_grad


def test_a_clone_that_looks_at_images_does_not_teach_who_is_shown_none():
    policy = BcPolicy(BcCfg(chunk_steps=2, execute_steps=1), {"state": (2,), "image/front": (3, 20, 20)}, 1)
    with pytest.raises(GantryError, match="reads image/front, and learners are shown numbers alone"):
        ClonedTeacher(policy)


def test_a_teacher_of_the_present_alone_may_leave_rows_out(make):
    class Sometimes:
        present_only = True
        asked = 0

        def __call__(self, observations):
            self.asked += 1
            actions = -observations["teacher"]
            if self.asked % 2:
                return Guidance(actions, known=torch.zeros(len(actions), dtype=torch.bool))
            return Guidance(actions)

    teacher = Sometimes()
    runner = make(teacher=teacher, guide=ImitationCfg(action_weight=1.0, embedding_weight=0.0, imitation_iterations=0))
    assert isinstance(runner.alg, TeacherGuidedPPO)
    report = next(runner.work())
    assert teacher.asked == 10  # once in every step, and not again while learning
    assert math.isfinite(report.metrics["loss_imitation"])
    assert runner.alg._known.any(dim=1).tolist() == [False, True] * 5


def test_whole_plans_of_a_teacher_guide_until_an_episode_ends(make):
    class Plans:
        asked = 0

        def plans(self, observations):
            self.asked += 1
            return (-observations["teacher"])[:, None].expand(-1, 4, -1) * torch.tensor([1.0, 0.5, 0.25, 0.125])[
                :, None
            ]

    planner = Plans()
    guide = ImitationCfg(action_weight=1.0, embedding_weight=0.0, imitation_iterations=0)
    runner = make(teacher=WholePlans(planner, 4, 2), guide=guide, steps_per_env=30, total_steps=240)
    report = next(runner.work())
    assert planner.asked == 8
    assert math.isfinite(report.metrics["loss_imitation"])
    alg, dones = runner.alg, runner.alg.storage.dones.squeeze(-1).bool()
    seen = alg.storage.observations["teacher"]
    inside = 0
    for step in range(30):
        begin = step - step % 4
        ended = dones[begin:step].any(0)
        assert alg._known[step].equal(~ended)
        assert torch.allclose(alg._answers[step], -seen[begin] * 0.5 ** (step - begin))
        inside += int(ended.sum())
    assert inside > 0
