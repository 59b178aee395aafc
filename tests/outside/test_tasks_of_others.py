"""Tasks that a package gives to mjlab by an entry point, without a word of Gantry, are tasks here."""

import pytest

from gantry_fixtures.outside import list_and_train
from gantry_fixtures.recorded import largest_difference

TASK = "mjlab:Terrier-Dig-Go1"


@pytest.mark.soak
def test_a_task_by_entry_point_is_listed_trained_and_exported(tmp_path, with_terrier):
    """Two iterations, and a contract with the package's own scale, whose numbers are those of the environment."""
    listed, iterations, bundle = list_and_train(TASK, 384, tmp_path / "run", with_terrier)
    assert TASK in listed.split()
    # The trunk is between the ground and 0.4 m, and the package's reward is three times what is left.
    assert [0.0 < row["reward_term/low_head"] < 1.2 for row in iterations] == [True, True]
    scales = {term.name: term.scale for term in bundle.contract.observations}
    assert (bundle.contract.robot, scales["joint_vel"], scales["joint_pos"]) == ("go1", pytest.approx(0.05), 1.0)
    assert largest_difference(bundle.contract, bundle.golden) < 1e-5
