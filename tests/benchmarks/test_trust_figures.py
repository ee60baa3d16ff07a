"""The figures on trust show what their captions say."""

from __future__ import annotations

import numpy as np

from benchmarks.trust_figures import GAP, LEARNED, made_up, noise_std, parts_figure


def test_the_made_up_table_has_a_gap_and_the_noise_that_it_names() -> None:
    x, y = made_up(5000, seed=0)
    assert len(x) == len(y) == 5000
    assert not np.any((x >= GAP[0]) & (x <= GAP[1]))
    assert x.min() >= LEARNED[0]
    assert x.max() <= LEARNED[1]
    scores = (y - 3.0 * np.sin(x) - x) / noise_std(x)
    assert abs(scores.std() - 1.0) < 0.05


def test_the_figure_of_both_parts_has_the_truth_and_a_band() -> None:
    figure = parts_figure(epochs=2).to_dict()
    (rows,) = (rows for rows in figure["datasets"].values() if "epistemic_std" in str(rows[0]))
    assert {"mean", "low", "high", "truth", "true noise"} <= set(rows[0])
    assert all(row["low"] < row["mean"] < row["high"] for row in rows)
