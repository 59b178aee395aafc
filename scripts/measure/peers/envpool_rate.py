"""Control steps per second of an EnvPool task under random actions, as JSON; compare.py runs it beside EnvPool.

python scripts/measure/peers/envpool_rate.py TASK ENVS SECONDS
"""

from __future__ import annotations

import json
import sys
import time

import envpool
import numpy as np


def main() -> None:
    """Measure and print."""
    task, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    env = envpool.make_gymnasium(task, num_envs=count)
    env.reset()
    draw = np.random.default_rng(1)
    size = (count, *env.action_space.shape)
    actions = [np.clip(0.3 * draw.standard_normal(size), -1.0, 1.0) for _ in range(8)]
    for step in range(20):
        env.step(actions[step % len(actions)])
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        env.step(actions[steps % len(actions)])
        steps += 1
    print(json.dumps({"steps_per_s": steps * count / elapsed, "version": envpool.__version__}))


if __name__ == "__main__":
    main()
