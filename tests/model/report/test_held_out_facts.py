"""Summaries of held-out rows with known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from murho.model.evaluation.held_out import HeldOutRows
from murho.model.evaluation.metrics import RowWeights
from murho.model.report.held_out_facts import held_out_facts
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target

pytestmark = pytest.mark.fast

ROWS = 1_000
DISTRICT = Feature("district", FeatureKind.CATEGORICAL, None, False, None, None, ("east", "west"))
SCHEMA = Schema((DISTRICT,), Target("rent", None), {})
COLUMNS = {"district": np.array(["east", "west"] * (ROWS // 2), dtype=object)}


def perfect() -> HeldOutRows:
    """Rows of N(0, std) that are predicted as such; std rises from 1 to 2."""
    pit = (np.random.default_rng(0).permutation(ROWS) + 0.5) / ROWS
    std = np.linspace(1.0, 2.0, ROWS)
    targets = std * 1.7 * (2.0 * pit - 1.0)
    band = std[:, None] * np.array([-1.53, 1.53])
    return HeldOutRows(np.arange(ROWS), targets, np.zeros(ROWS), std, pit, band, None, None, RowWeights.of(ROWS))


def test_uniform_pits_lie_on_the_diagonal_and_are_flat() -> None:
    facts = held_out_facts(perfect(), SCHEMA, COLUMNS)
    levels = facts["reliability"]["levels"]
    np.testing.assert_allclose(facts["reliability"]["percentiles"]["raw"], levels, atol=1e-9)
    np.testing.assert_allclose(facts["reliability"]["bands"]["raw"], levels, atol=2e-3)
    assert facts["pit"]["raw"] == pytest.approx([0.05] * 20)
    assert "calibrated" not in facts["pit"]


def test_bands_that_are_too_narrow_lie_below_it_and_have_high_ends() -> None:
    rows = perfect()
    narrow = np.clip(0.5 + 1.5 * (rows.pit_raw - 0.5), 0.0, 1.0)
    facts = held_out_facts(replace(rows, pit_calibrated=narrow, band_calibrated=rows.band_raw), SCHEMA, COLUMNS)
    assert facts["reliability"]["bands"]["calibrated"][89] == pytest.approx(0.6, abs=0.01)
    assert facts["pit"]["calibrated"][0] > 0.15
    assert all(group["calibrated"] < 0.75 for group in facts["by_category"]["district"])


def test_groups_by_std_rise_and_tell_the_error() -> None:
    groups = held_out_facts(perfect(), SCHEMA, COLUMNS)["by_std"]
    assert [group["rows"] for group in groups] == [100] * 10
    assert [group["rms_std"] for group in groups] == pytest.approx(np.arange(1.05, 2.0, 0.1), abs=2e-3)
    for group in groups:
        assert group["rmse"] / group["rms_std"] == pytest.approx(1.7 / 3.0**0.5, rel=0.15)
        assert group["chance"] == pytest.approx(0.03)


def test_rows_of_one_unit_count_as_one() -> None:
    rows = perfect()
    units = RowWeights.of(ROWS, None, np.repeat(np.arange(100), 10))
    assert held_out_facts(replace(rows, weights=units), SCHEMA, COLUMNS)["independent"] == pytest.approx(100.0)


def test_weights_count_in_shares() -> None:
    rows = perfect()
    heavy = np.where(rows.pit_raw < 0.5, 3.0, 1.0)
    facts = held_out_facts(replace(rows, weights=RowWeights.of(ROWS, heavy)), SCHEMA, COLUMNS)
    assert facts["reliability"]["percentiles"]["raw"][49] == pytest.approx(0.75, abs=2e-3)
