"""Trainings: phases, what is learned, and going on exactly where one was stopped."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_hardware.training.trainer import DivergedError
from gantry_policies.common.checkpoint import CheckpointError
from gantry_policies.common.evaluation import evaluate
from gantry_policies.off_policy.bases import ChunkedBase
from gantry_policies.off_policy.config import LearnerCfg
from gantry_policies.off_policy.presets import resfit, rlpd, wsrl
from gantry_policies.off_policy.trainer import OffPolicyTrainer


def small(cfg, hidden=(32,), batch=32, actor=None, critic=None, learner=None, **train):
    """A preset for a toy."""
    inner = cfg.agent
    inner = replace(
        inner,
        batch_size=batch,
        actor=replace(inner.actor, hidden=hidden, **(actor or {})),
        critic=replace(inner.critic, hidden=hidden, heads=3, **(critic or {})),
        **(learner or {}),
    )
    return replace(cfg, agent=inner, **train)


SHORT = {
    "total_steps": 120,
    "warmup_steps": 40,
    "eval_every_steps": 40,
    "eval_episodes": 8,
    "log_every_steps": 20,
    "updates_per_step": 0.5,
}


def short_resfit(**options):
    return small(
        resfit(),
        hidden=(8,),
        batch=8,
        learner={"critic_updates": 4},
        **(SHORT | {"critic_warmup_updates": 5} | options),
    )


def make(reach, make_base, demos, cfg, run_dir=None, env=None, **options):
    env = env or reach(4)
    return OffPolicyTrainer(env, cfg, run_dir, base=make_base(4), demos=demos(3), **options)


def weights(trainer):
    networks = trainer.learner.state_dict()["networks"]
    return torch.cat([value.flatten().float() for state in networks.values() for value in state.values()])


QUICK = {
    "hidden": (32,),
    "batch": 32,
    "actor": {"learning_rate": 1e-3},
    "critic": {"learning_rate": 1e-3},
    "learner": {"gamma": 0.9},
    "updates_per_step": 0.5,
    "eval_episodes": 50,
}


def test_a_residual_over_a_mediocre_base_learns_to_hit(reach, make_base, demos):
    gentle = {"actor": {"learning_rate": 1e-3, "action_scale": 0.2, "explore_std": 0.05, "target_std": 0.05}}
    quick = QUICK | gentle | {"learner": {"gamma": 0.9, "critic_updates": 4}}
    cfg = small(resfit(), total_steps=1200, warmup_steps=400, critic_warmup_updates=100, eval_every_steps=1200, **quick)
    here = {"demos": demos(20, goals=0.0), "eval_env": reach(50, 9, goals=0.0), "eval_base": make_base(50)}
    seen = []
    assert OffPolicyTrainer(reach(8, goals=0.0), cfg, base=make_base(8), **here).train(seen.append)
    before, after = (progress.evaluation for progress in seen if progress.evaluation)
    alone = evaluate(reach(50, 9, goals=0.0), make_base(50), 50)
    assert before == alone  # at the start it is the base
    assert before.success_at_end.mean < 0.5
    assert after.success_at_end.low > before.success_at_end.high


def test_rlpd_learns_from_demonstrations_and_its_own_attempts(reach, demos, monkeypatch):
    monkeypatch.setattr(f"{reach.__module__}.REACH_M", 0.1)
    cfg = small(rlpd(), total_steps=1000, warmup_steps=200, eval_every_steps=1000, **QUICK)
    seen = []
    trainer = OffPolicyTrainer(reach(8, goals=0.0), cfg, demos=demos(20, goals=0.0), eval_env=reach(50, 9, goals=0.0))
    assert trainer.train(seen.append)
    before, after = (progress.evaluation for progress in seen if progress.evaluation)
    assert after.success_at_end.low > before.success_at_end.high + 0.2


def test_phases_come_in_order_and_do_what_they_say(reach, make_base, demos):
    seen = []
    trainer = make(reach, make_base, demos, short_resfit(critic_warmup_updates=25))
    trainer.train(seen.append)
    phases = [(p.phase, p.env_steps, p.metrics["updates"], p.evaluation is not None) for p in seen]
    assert phases[:4] == [
        ("warmup", 0, 0, True),
        ("warmup", 20, 0, False),
        ("warmup", 40, 0, False),
        ("critic_warmup", 40, 20, False),
    ]
    assert phases[4:] == [
        ("learn", 60, 33, False),  # 20 steps of which each earns half an update, in groups of four
        ("learn", 80, 45, False),
        ("learn", 80, 45, True),
        ("learn", 100, 53, False),
        ("learn", 120, 65, False),
        ("learn", 120, 65, True),
    ]
    assert trainer.learner.actor_updates == 10
    assert len(trainer.replay) == 120
    assert len(trainer.demos) == sum(demo.action.shape[0] for demo in demos(3))


def test_wsrl_learns_from_demonstrations_first_and_then_forgets_them(reach, demos):
    cfg = small(wsrl(), hidden=(8,), batch=16, pretrain_updates=6, **SHORT)
    seen = []
    trainer = OffPolicyTrainer(reach(4), cfg, demos=demos(3))
    trainer.train(seen.append)
    assert trainer.learner.actor_updates == 6 + 10
    assert not trainer.learner.draw(trainer.replay, trainer.demos).is_demo.any()
    evaluated = [p.env_steps for p in seen if p.evaluation]
    assert evaluated == [0, 80, 120]  # between 0 and 40 the policy is frozen


@pytest.mark.parametrize("stop_at", ["pretrain", "warmup", "critic_warmup", "learn"])
def test_a_training_goes_on_exactly_where_it_was_stopped(stop_at, reach, make_base, demos, tmp_path):
    cfg = short_resfit(pretrain_updates=4, critic_warmup_updates=20, log_every_steps=4)

    def train(folder, stop=None, resume=False):
        torch.manual_seed(11)
        trainer = make(reach, make_base, demos, cfg, tmp_path / folder, eval_env=reach(4, 5), eval_base=make_base(4))
        if resume:
            trainer.resume()

        def watch(progress):
            seen.append(progress)
            if progress.phase == stop and progress.evaluation is None and (stop != "learn" or progress.env_steps > 70):
                trainer.stop()

        seen = []
        assert trainer.train(watch) == (stop is None)
        return trainer

    straight = train("straight")
    train("stopped", stop=stop_at)
    torch.manual_seed(99)
    resumed = train("stopped", resume=True)
    assert resumed.collector.env_steps == straight.collector.env_steps == 120
    assert torch.equal(weights(resumed), weights(straight))
    for key in ("action", "reward", "is_transition"):
        assert torch.equal(resumed.replay._rows[key], straight.replay._rows[key])
    rows = [read_metrics(tmp_path / folder / METRICS_FILE) for folder in ("straight", "stopped")]
    for row in (*rows[0], *rows[1]):
        row.pop("wall_s")
    assert rows[0] == rows[1]


def test_environments_that_cannot_be_restored_begin_new_episodes_after_a_resume(reach, make_base, demos, tmp_path):
    class Forgetful(reach):
        training_state = None

    cfg = short_resfit(eval_every_steps=0)
    trainer = make(reach, make_base, demos, cfg, tmp_path, Forgetful(4))
    trainer.train(lambda progress: progress.phase == "learn" and trainer.stop())
    again = make(reach, make_base, demos, cfg, tmp_path, Forgetful(4, seed=3))
    again.resume()
    assert not again.replay._open.any()
    assert again.train()
    assert again.collector.env_steps == 120


def test_rows_beyond_the_checkpoint_are_left_out_and_old_buffers_removed(reach, make_base, demos, tmp_path):
    cfg = short_resfit(eval_every_steps=0, save_every_s=0.0)
    trainer = make(reach, make_base, demos, cfg, tmp_path)
    trainer.train()
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["demos.npz", "model_116.pt", "model_120.pt", "replay_116.npz", "replay_120_again.npz"]
    (tmp_path / "checkpoints" / "model_120.pt").write_bytes(b"damaged")
    again = make(reach, make_base, demos, cfg, tmp_path)
    assert again.resume().name == "model_116.pt"
    again.train()
    rows = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [20, 40, 60, 80, 100, 120]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def swap(path):
    path.write_bytes((path.parent / "replay_116.npz").read_bytes())


DAMAGES = {
    "a bit": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "garbage": lambda path: path.write_bytes(b"garbage"),
    "missing": lambda path: path.unlink(),
    "of another step": swap,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_buffer_falls_back_to_the_pair_before(reach, make_base, demos, tmp_path, capsys, damage):
    cfg = short_resfit(eval_every_steps=0, save_every_s=0.0)
    make(reach, make_base, demos, cfg, tmp_path).train()
    damage(tmp_path / "checkpoints" / "replay_120_again.npz")
    again = make(reach, make_base, demos, cfg, tmp_path)
    assert again.resume().name == "model_116.pt"
    told = capsys.readouterr().err
    assert "model_120.pt (replay_120_again.npz" in told
    assert "Using the older model_116.pt" in told
    assert again.train()
    assert make(reach, make_base, demos, cfg, tmp_path).resume().name == "model_120.pt"


def test_damaged_demonstrations_are_made_anew_or_refused(reach, make_base, demos, tmp_path, capsys):
    cfg = short_resfit(eval_every_steps=0)
    trainer = make(reach, make_base, demos, cfg, tmp_path)
    trainer.train()
    flip(tmp_path / "checkpoints" / "demos.npz")
    again = make(reach, make_base, demos, cfg, tmp_path)
    again.resume()
    assert "It is made anew from the demonstrations" in capsys.readouterr().err
    for key, values in trainer.demos._rows.items():
        assert torch.equal(again.demos._rows[key], values)


def test_environments_that_raise_cost_nothing_that_was_learned(reach, make_base, demos, tmp_path, capsys):
    class Breaking(reach):
        left = 20

        def step(self, action):
            self.left -= 1
            if self.left < 0:
                raise OSError("the cable is loose")
            return super().step(action)

        def training_state(self):
            if self.left < 0:
                raise OSError("the cable is loose")
            return super().training_state()

    cfg = short_resfit(eval_every_steps=0)
    trainer = make(reach, make_base, demos, cfg, tmp_path, Breaking(4))
    with pytest.raises(OSError, match="the cable is loose"):
        trainer.train()
    assert "What was learned until then is saved" in capsys.readouterr().err
    again = make(reach, make_base, demos, cfg, tmp_path)
    assert again.resume().name == "model_80.pt"
    assert torch.equal(weights(again), weights(trainer))
    assert again.train()


def test_numbers_that_are_not_finite_do_not_reach_the_buffer(reach, make_base, demos, tmp_path):
    class Spoilt(reach):
        def step(self, action):
            step = super().step(action)
            if self.time.max() > 5:
                step.next_obs["state"][2, 1] = torch.inf
            return step

    trainer = make(reach, make_base, demos, short_resfit(eval_every_steps=0), tmp_path, Spoilt(4))
    with pytest.raises(GantryError, match="Environment 2 gave an observation 'state' of inf at place 1 in"):
        trainer.train()
    assert torch.isfinite(trainer.replay.stored("state")).all()


def test_a_stop_leaves_an_evaluation_which_the_continuation_does(reach, make_base, demos, tmp_path):
    cfg = short_resfit()
    looks = reach(4, 5)
    trainer = make(reach, make_base, demos, cfg, tmp_path, eval_env=looks, eval_base=make_base(4))
    step = looks.step

    def stops(action):
        trainer.stop()
        return step(action)

    looks.step = stops
    assert not trainer.train()
    assert trainer.counters.next_evaluation == 0
    seen = []
    again = make(reach, make_base, demos, cfg, tmp_path, eval_env=reach(4, 5), eval_base=make_base(4))
    again.resume()
    again.train(seen.append)
    assert [p.env_steps for p in seen if p.evaluation] == [0, 80, 120]


def test_curves_for_tensorboard_hold_training_and_evaluations(reach, make_base, demos, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    make(reach, make_base, demos, short_resfit(), tmp_path, eval_env=reach(4, 5), eval_base=make_base(4)).train()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/critic_loss", "train/return_in_training", "eval/success_once", "eval/success_once/low"} <= tags
    rows = read_metrics(tmp_path / METRICS_FILE)
    looks = [(row["env_steps"], row["success_once"]["mean"]) for row in rows if row["kind"] == "eval"]
    found = [(event.step, event.value) for event in events.Scalars("eval/success_once")]
    assert np.array(found) == pytest.approx(np.array(looks))


def test_a_checkpoint_of_another_configuration_is_refused(reach, make_base, demos, tmp_path):
    trainer = make(reach, make_base, demos, short_resfit(total_steps=8, eval_every_steps=0), tmp_path)
    trainer.train()
    other = make(reach, make_base, demos, small(resfit(), hidden=(9,), **SHORT), tmp_path)
    with pytest.raises(CheckpointError, match="does not fit this run's configuration"):
        other.resume()
    with pytest.raises(CheckpointError, match="No usable checkpoint"):
        make(reach, make_base, demos, short_resfit(), tmp_path / "nowhere").resume()


def test_trap_13_what_one_base_labelled_is_not_learned_from_on_top_of_another(reach, make_base, demos, tmp_path):
    cfg = short_resfit(total_steps=8, eval_every_steps=0)
    make(reach, make_base, demos, cfg, tmp_path).train()

    def other_base(num_envs):
        return ChunkedBase(lambda obs: torch.full((obs["state"].shape[0], 3, 2), 0.3), num_envs)

    for base in (other_base, lambda num_envs: ChunkedBase(lambda obs: torch.zeros(len(obs["state"]), 3, 2), num_envs)):
        with pytest.raises(CheckpointError, match="The base is another one"):
            make(reach, base, demos, cfg, tmp_path).resume()
    make(reach, make_base, demos, cfg, tmp_path).resume()


def test_a_loss_that_is_not_finite_ends_the_training_and_keeps_the_last_checkpoint(reach, make_base, demos, tmp_path):
    trainer = make(reach, make_base, demos, short_resfit(eval_every_steps=0), tmp_path)
    trainer.learner.critic.ensemble.last.bias.data.fill_(torch.nan)
    with pytest.raises(DivergedError, match="critic's loss stopped being finite in updates 1 to 5;"):
        trainer.train()
    assert not list(tmp_path.glob("checkpoints/*"))


def test_nothing_is_saved_of_a_learner_that_is_not_finite(reach, make_base, demos, tmp_path):
    """Saving after every piece of work, so long before the loss is reported."""
    cfg = short_resfit(eval_every_steps=0, log_every_steps=10_000, save_every_s=0.0, critic_warmup_updates=3)
    trainer = make(reach, make_base, demos, cfg, tmp_path)
    update = trainer.learner.update_critic

    def broken(*buffers):
        found = update(*buffers)
        if trainer.learner.critic_updates == 2:
            trainer.learner.critic.ensemble.last.bias.data.fill_(torch.nan)
        return found

    trainer.learner.update_critic = broken
    with pytest.raises(DivergedError, match="learner's weights stopped being finite in update 2;"):
        trainer.train()
    trainer.learner.update_critic = update
    trainer.resume()
    assert trainer.learner.critic_updates == 1
    assert torch.isfinite(weights(trainer)).all()


def test_states_are_scaled_by_the_warm_up_where_there_are_no_demonstrations(reach):
    cfg = small(rlpd(), hidden=(8,), batch=8, **(SHORT | {"eval_every_steps": 0, "total_steps": 40}))
    trainer = OffPolicyTrainer(reach(4), cfg)
    trainer.train()
    seen = trainer.replay.stored("state")
    assert torch.equal(trainer.learner.state_scaler.mean, seen.mean(0))
    assert seen.shape == (40, 4)


def test_what_is_missing_is_said_before_anything_begins(reach, make_base, demos):
    with pytest.raises(GantryError, match="needs a base policy, but there is none"):
        OffPolicyTrainer(reach(4), short_resfit())
    with pytest.raises(GantryError, match="acts for 3 environments, expected 4"):
        OffPolicyTrainer(reach(4), short_resfit(), base=make_base(3))
    with pytest.raises(GantryError, match="pretrain_updates is 5000, but there are no demonstrations"):
        OffPolicyTrainer(reach(4), wsrl())
    with pytest.raises(GantryError, match="base of their own"):
        OffPolicyTrainer(reach(4), short_resfit(), base=make_base(4), eval_env=reach(4))
    with pytest.raises(GantryError, match="'base_noise', but there is no base"):
        OffPolicyTrainer(reach(4), replace(short_resfit(), agent=LearnerCfg()))
