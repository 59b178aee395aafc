"""``gantry`` as one of the processes of torchrun, with a record: ``train_together.py FOLDER WORDS...``.

``record-RANK.pt`` holds observations of the environments as they were made, and what generators draw once the run is
continued.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from gantry_deploy.cli.main import main
from gantry_policies.common import processes
from gantry_sim.training import train


def recording(folder: Path):
    """The function that builds trainers, which leaves a record as well."""
    build = train.build_trainer

    def build_trainer(run, run_dir):
        trainer = build(run, run_dir)
        made = dict(trainer.env.get_observations())
        resume = trainer.resume

        def resumed():
            path = resume()
            generators = [torch.default_generator, *trainer.env.generators]
            drawn = [torch.rand(3, generator=generator.clone_state()) for generator in generators]
            torch.save({"made": made, "drawn": drawn}, folder / f"record-{processes.rank()}.pt")
            return path

        trainer.resume = resumed
        return trainer

    return build_trainer


if __name__ == "__main__":
    torch.set_num_threads(1)
    train.build_trainer = recording(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
