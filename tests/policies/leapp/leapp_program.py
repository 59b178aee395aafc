"""A LEAPP folder by the package leapp itself: leapp_program.py DESCRIPTION.yaml STEPS.npz ANSWERS.npz

STEPS.npz holds (M, k) of each input of the pipeline, and ``reset`` (M,); ANSWERS.npz (M, k) of each of its outputs.
"""

import sys

import leapp
import numpy as np
import torch

manager = leapp.InferenceManager(sys.argv[1])
steps = dict(np.load(sys.argv[2]))
begins = steps.pop("reset")
names = {key.split("/")[1]: key for key in manager.inputs}
assert set(names) == set(steps), (manager.inputs, sorted(steps))
rows = []
for row in range(len(begins)):
    if begins[row]:
        manager.reset()
    answer = manager({key: torch.from_numpy(steps[name][row : row + 1]) for name, key in names.items()})
    rows.append({key.split("/")[1]: value.numpy().copy()[0] for key, value in answer.items()})
np.savez(sys.argv[3], **{name: np.stack([row[name] for row in rows]) for name in rows[0]})
