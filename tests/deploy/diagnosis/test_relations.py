"""Relations between columns, against columns that were made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gantry_deploy.diagnosis.findings import Diagnosis, FindingKind
from gantry_deploy.diagnosis.relations import relation_of, tell_relations

KNOWN = np.random.default_rng(3).normal(size=(60, 4))
ONE_RUN = np.zeros(60, dtype=np.intp)


def relation(seen, column=0, segments=ONE_RUN):
    return relation_of(seen, KNOWN, column, segments=segments, max_lag=3, tolerance=1e-6)


def test_the_same_column_is_the_identity():
    found = relation(KNOWN.copy())
    assert found.is_identity
    assert found.residual == 0.0


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (KNOWN[:, [2, 1, 0, 3]], (2, 0, 1.0, 0.0)),
        (-KNOWN, (0, 0, -1.0, 0.0)),
        (0.25 * KNOWN, (0, 0, 0.25, 0.0)),
        (KNOWN + 0.7, (0, 0, 1.0, 0.7)),
        (-2.0 * KNOWN[:, [1, 0, 2, 3]] + 0.5, (1, 0, -2.0, 0.5)),
    ],
)
def test_order_sign_factor_and_offset(seen, expected):
    found = relation(seen)
    assert (found.source, found.lag) == expected[:2]
    assert found.scale == pytest.approx(expected[2])
    assert found.offset == pytest.approx(expected[3])


def test_numbers_of_two_rows_before_are_two_late_and_runs_are_not_mixed():
    segments = np.repeat([0, 1], 30)
    late = np.concatenate([np.concatenate((run[:1], run[:1], run[:-2])) for run in (KNOWN[:30], KNOWN[30:])])
    found = relation(late, segments=segments)
    assert (found.source, found.lag, found.scale) == (0, 2, 1.0)


def test_what_does_not_change_is_a_constant():
    found = relation(np.full_like(KNOWN, 0.3))
    assert (found.source, found.scale, found.offset) == (-1, 0.0, pytest.approx(0.3))


def test_noise_has_no_relation():
    assert relation(np.random.default_rng(4).normal(size=KNOWN.shape)) is None


def test_findings_name_columns_factors_and_units():
    diagnosis = Diagnosis()
    seen = np.stack((KNOWN[:, 1], KNOWN[:, 0], np.degrees(KNOWN[:, 2]), -KNOWN[:, 3]), axis=1)
    relations = [relation(seen, column) for column in range(4)]
    tell_relations(diagnosis, "joint_pos", relations, ["a", "b", "c", "d"], 0.02, "rad")
    told = {finding.kind: finding for finding in diagnosis.findings}
    assert told[FindingKind.PERMUTATION].names == ("a", "b")
    assert "a shows b, b shows a" in told[FindingKind.PERMUTATION].text
    assert told[FindingKind.SCALE].names == ("c",)
    assert "57.3 times" in told[FindingKind.SCALE].text
    assert "degrees in place of radians" in told[FindingKind.SCALE].text
    assert told[FindingKind.SIGN].names == ("d",)
    assert len(diagnosis.findings) == 3
