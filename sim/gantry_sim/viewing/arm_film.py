"""Episodes of a policy as a film, from the training environment: the arm as it looks, its object, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from gantry_deploy.report import encode_mp4
from gantry_hardware.errors import GantryError
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.process.torch_threads import torch_threads
from gantry_sim.training.policies import Source
from gantry_sim.training.run_files import EVALUATION_SEED
from gantry_sim.viewing.camera import TrackingCamera

FILM_PX = (640, 480)
"""Width and height."""
PAUSE_S = 0.5
"""Time for which the end of an episode is shown."""


@dataclass(frozen=True)
class Played:
    """Content of a film."""

    frames: int
    """Pictures."""
    episodes: int
    """Episodes that were begun."""
    succeeded: int
    """Of those that ended, with success."""


@torch.no_grad()
def film_source(
    source: Source, seconds: float, *, seed: int = EVALUATION_SEED, on_progress: Callable[[float], None]
) -> tuple[bytes, Played]:
    """Run episodes one after the other and draw every step.

    Args:
        source: The policy and its task.
        seconds: Length of the film; the episode that is running then is shown to its end.
        seed: Of the episodes.
        on_progress: Called with the share that is done.

    Returns:
        The film as MP4 in real time, and what it shows.

    Raises:
        GantryError: If this machine cannot draw, or the task's environments are not Gantry's own.
    """
    if not any(item.name == "meshes" for item in fields(source.env_cfg)):
        raise GantryError(f"Task '{source.task.name}' runs in environments that cannot be drawn.")
    with torch_threads(1):
        env = source.task.make_env(replace(source.env_cfg, num_envs=1, meshes=True), "cpu", seed)
        try:
            if not isinstance(env, ArmStepEnv):
                raise GantryError(f"Task '{source.task.name}' runs in a {type(env).__name__}, which cannot be drawn.")
            played = [Played(0, 0, 0)]

            def frames() -> Iterator[NDArray[np.uint8]]:
                wanted = max(1.0, seconds / env.dt_s)
                for picture, now in _play(env, source, seconds):
                    played[0] = now
                    on_progress(min(1.0, now.frames / wanted))
                    yield picture

            film = encode_mp4(frames(), 1.0 / env.dt_s)
            on_progress(1.0)
            return film, played[0]
        finally:
            env.close()


def _play(env: ArmStepEnv, source: Source, seconds: float) -> Iterator[tuple[NDArray[np.uint8], Played]]:
    """Pictures of whole episodes, and the state of affairs."""
    camera = _Camera(env)
    try:
        policy = source.make_policy(env)
        obs = env.reset()
        policy.reset()
        frames, episodes, succeeded, steps = 0, 1, 0, 0
        while True:
            action = policy.act(obs)
            base = getattr(policy, "last_base_action", None)
            picture = camera.picture(_caption(source, episodes, steps * env.dt_s, action, base))
            frames += 1
            yield picture, Played(frames, episodes, succeeded)
            step = env.step(action)
            steps += 1
            if bool((step.terminated | step.truncated)[0]):
                succeeded += int(step.success[0])
                for _ in range(round(PAUSE_S / env.dt_s)):
                    frames += 1
                    yield picture, Played(frames, episodes, succeeded)
                if frames * env.dt_s >= seconds:
                    return
                policy.reset(torch.zeros(1, dtype=torch.long))
                episodes, steps = episodes + 1, 0
            obs = step.obs
    finally:
        camera.close()


class _Camera:
    """Looks at the one environment."""

    def __init__(self, env: ArmStepEnv) -> None:
        self._sim = env.env.sim
        self._data = mujoco.MjData(self._sim.mj_model)
        self._camera = TrackingCamera(self._sim.mj_model, *FILM_PX, 0.0)

    def close(self) -> None:
        self._camera.close()

    def picture(self, caption: str) -> NDArray[np.uint8]:
        state = self._sim.data
        self._data.qpos[:] = state.qpos[0].cpu().numpy()
        if self._sim.mj_model.nmocap:
            self._data.mocap_pos[:] = state.mocap_pos[0].cpu().numpy()
            self._data.mocap_quat[:] = state.mocap_quat[0].cpu().numpy()
        mujoco.mj_kinematics(self._sim.mj_model, self._data)
        mujoco.mj_camlight(self._sim.mj_model, self._data)
        return self._camera.picture(self._data, np.array([0.25, 0.0, 0.0]), caption=caption)


def _caption(source: Source, episode: int, time_s: float, action: torch.Tensor, base: torch.Tensor | None) -> str:
    lines = [f"{source.task.name}, episode {episode}, {time_s:4.1f} s", f"|action| {float(action.abs().mean()):.2f}"]
    if base is not None:
        base = base.to(action.device)
        lines.append(f"|base| {float(base.abs().mean()):.2f}  |residual| {float((action - base).abs().mean()):.2f}")
    return "\n".join(lines)
