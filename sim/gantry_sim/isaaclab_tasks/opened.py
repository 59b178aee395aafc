"""Environments of Isaac Lab, opened and closed: a process has one simulation at a time."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from gantry_hardware.errors import GantryError
from gantry_sim.process.suppress_output import quietly

_OPEN: list[OpenEnv] = []


class OpenEnv:
    """An environment of Isaac Lab; one that is open in this process already is closed first.

    Args:
        task_id: Name in gymnasium's registry.
        env_cfg: Isaac Lab's configuration.

    Raises:
        GantryError: If Isaac Lab cannot build it.
    """

    def __init__(self, task_id: str, env_cfg: Any) -> None:
        while _OPEN:
            _OPEN[-1].close()
        self._stack, self._made = ExitStack(), None
        try:
            with quietly():
                import gymnasium
                from isaaclab.app import launch_simulation

                self._stack.enter_context(launch_simulation(env_cfg, {}))
                self._made = gymnasium.make(task_id, cfg=env_cfg)
                self.env: Any = self._made.unwrapped
        except GantryError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise GantryError(f"Isaac Lab cannot build {task_id}: {type(error).__name__}: {error}") from error
        _OPEN.append(self)

    def close(self) -> None:
        """Close environment and simulation; a second time does nothing."""
        if self in _OPEN:
            _OPEN.remove(self)
        made, self._made = self._made, None
        with quietly():
            if made is not None:
                made.close()
            else:
                _forget_simulation()
            self._stack.close()

    @property
    def is_open(self) -> bool:
        """Whether it can be stepped."""
        return self._made is not None


def _forget_simulation() -> None:
    """Clear what an environment that was not finished leaves behind."""
    from isaaclab.sim import SimulationContext

    if SimulationContext.instance() is not None:
        SimulationContext.clear_instance()
