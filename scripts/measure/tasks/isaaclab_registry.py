"""Reasons that keep tasks of Isaac Lab from training or from having a contract, told by their configurations alone.

python scripts/measure/tasks/isaaclab_registry.py [--begin Isaac-]
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from gantry_hardware.errors import GantryError
from gantry_sim.isaaclab_tasks.cfg import actor_groups, agent_cfg, registered, resolved
from gantry_sim.isaaclab_tasks.contract import require_sayable
from gantry_sim.isaaclab_tasks.fit import provide_files
from gantry_sim.managed_tasks.learner import unmapped


def reasons(task_id: str) -> tuple[str, str]:
    """Reasons that keep a task from training, and its policies from a contract; empty for nothing."""
    try:
        left_out = unmapped(agent_cfg(task_id))
        env_cfg, _ = resolved(task_id)
    except GantryError as error:
        return f"no: {error}", ""
    contract = refusal(lambda: require_sayable(env_cfg, task_id, actor_groups(task_id)))
    files = refusal(lambda: provide_files(env_cfg))
    return files or (f"without {', '.join(left_out)}" if left_out else ""), contract


def refusal(check: Callable[[], None]) -> str:
    """Text of the refusal of a check; empty for none."""
    try:
        check()
    except GantryError as error:
        return f"no: {error}"
    return ""


def main() -> None:
    """Print a table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--begin", default="Isaac-", help="beginning of the names; %(default)s")
    args = parser.parse_args()
    print("| task | configured | contract |\n|---|---|---|", flush=True)
    for task_id in registered():
        if task_id.startswith(args.begin):
            trains, contract = (
                " ".join(re.sub(r" (Known are|and Gantry has).*", "", text).split()) for text in reasons(task_id)
            )
            print(f"| `{task_id}` | {trains or 'yes'} | {contract} |", flush=True)


if __name__ == "__main__":
    main()
