"""Tasks that a package registers for Isaac Lab by an entry point are tasks here. `make test-isaaclab` runs it."""

from importlib.util import find_spec

import pytest

from gantry_fixtures.outside import list_and_train
from gantry_fixtures.recorded import largest_difference

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("isaaclab_tasks") is None, reason="needs Isaac Lab 3: make test-isaaclab"),
]

TASK = "isaaclab:Terrier-Dig-Go2"


def test_a_task_by_entry_point_is_listed_built_trained_and_exported(tmp_path, with_terrier):
    """One iteration, with the package's reward, and its scale in the contract."""
    listed, iterations, bundle = list_and_train(TASK, 192, tmp_path / "run", with_terrier)
    assert TASK in listed.split()
    assert [0.0 < row["reward_term/low_head"] < 1.2 for row in iterations] == [True]
    scales = {term.name: term.scale for term in bundle.contract.observations}
    assert (bundle.contract.robot, scales["joint_vel"], scales["joint_pos"]) == ("go2", pytest.approx(0.05), 1.0)
    assert largest_difference(bundle.contract, bundle.golden) < 1e-5
