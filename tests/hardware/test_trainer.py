"""The loop that every algorithm trains in: rows, stops, time limits, checkpoints, and errors."""

import json
from dataclasses import dataclass

import pytest

from gantry_fixtures.training import needs
from gantry_hardware.errors import GantryError
from gantry_hardware.training.log import METRICS_FILE, read_metrics
from gantry_hardware.training.trainer import CheckpointError, Report, Trainer, TrainingError


@dataclass(frozen=True)
class Judged:
    """A result of an evaluation."""

    share: float


class Counting(Trainer):
    """Counts to a number, one at a time; what it has counted is its whole state."""

    unit = "count"

    def __init__(self, run_dir, total=6, save_every_s=1e9, breaks_at=None):
        super().__init__(run_dir, save_every_s)
        self.count, self._total, self._breaks_at, self.saves = 0, total, breaks_at, []

    @property
    def done(self):
        return self.count

    @property
    def total(self):
        return self._total

    def work(self):
        while not self.is_complete and not self.is_stopping:
            if self.count == self._breaks_at:
                raise ValueError("broken")
            self.count += 1
            yield Report("count", {"square": float(self.count**2)}, Judged(0.5) if self.count == 4 else None)

    def save_checkpoint(self):
        if self.run_dir is None:
            return None
        self.saves.append(self.count)
        path = self.run_dir / "state.json"
        path.write_text(json.dumps({"count": self.count, "wall_s": self.wall_s, "rows": self.rows}))
        return path

    def save_after_error(self):
        return self.save_checkpoint()

    def resume(self):
        path = self.run_dir / "state.json"
        if not path.is_file():
            raise CheckpointError("nothing to resume")
        state = json.loads(path.read_text())
        self.count, self.wall_s, self.rows = state["count"], state["wall_s"], state["rows"]
        return path


def rows(folder):
    return [(row["kind"], row["count"], row["square"]) for row in read_metrics(folder / METRICS_FILE)]


@needs("tensorboard")
def test_every_report_is_a_row_and_is_told_with_where_it_stands(tmp_path):
    told = []
    trainer = Counting(tmp_path)
    assert trainer.train(told.append)
    assert [(item.phase, item.unit, item.done, item.total) for item in told] == [
        ("count", "count", number, 6) for number in range(1, 7)
    ]
    assert told[3].evaluation == Judged(0.5)
    assert [item.remaining_s >= 0.0 for item in told] == [True] * 6
    assert told[-1].remaining_s == 0.0
    kinds = ["train", "train", "train", "eval", "train", "train"]
    assert rows(tmp_path) == [(kind, n, float(n * n)) for n, kind in enumerate(kinds, start=1)]
    assert read_metrics(tmp_path / METRICS_FILE, "eval")[0]["share"] == 0.5
    assert trainer.saves == [6]


@needs("tensorboard")
def test_a_stop_saves_and_a_resume_writes_every_row_once(tmp_path):
    first = Counting(tmp_path)
    assert not first.train(lambda progress: first.stop() if progress.done == 2 else None)
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"kind": "train", "count": 3, "square": 9.0}\n{"kind": "tr')  # of a session that was killed
    second = Counting(tmp_path)
    second.resume()
    assert second.wall_s == first.wall_s
    assert second.train()
    assert [count for _, count, _ in rows(tmp_path)] == [1, 2, 3, 4, 5, 6]


@needs("tensorboard")
def test_a_time_limit_ends_a_training_as_complete_and_says_how_far_it_came(tmp_path):
    trainer = Counting(tmp_path, total=10**9)
    assert trainer.train(minutes=1e-9)
    assert (trainer.done, trainer.is_complete, trainer.saves) == (1, False, [1])
    assert [trainer.is_over(minutes) for minutes in (0.0, 1e-9, 60.0)] == [False, True, False]


@needs("tensorboard")
def test_checkpoints_come_by_the_clock(tmp_path):
    trainer = Counting(tmp_path, save_every_s=0.0)
    trainer.train()
    assert trainer.saves == [1, 2, 3, 4, 5, 6, 6]


@needs("tensorboard")
def test_what_was_learned_is_saved_before_an_error_goes_on(tmp_path, capsys):
    trainer = Counting(tmp_path, breaks_at=3)
    with pytest.raises(ValueError, match="broken"):
        trainer.train()
    assert trainer.saves == [3]
    assert "What was learned until then is saved" in capsys.readouterr().err
    again = Counting(tmp_path)
    again.resume()
    assert again.done == 3


def test_a_log_that_cannot_be_written_is_one_clear_message(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TrainingError, match=r"Cannot write the log in '.*file'"):
        Counting(tmp_path / "file").train()


def test_without_a_folder_nothing_is_written(tmp_path):
    assert Counting(None).train()
    assert not list(tmp_path.iterdir())


def test_one_of_several_processes_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(GantryError, match="WORLD_SIZE is '2'"):
        Counting(None)
