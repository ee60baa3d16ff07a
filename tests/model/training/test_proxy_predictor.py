"""The cheap predictor of the advice."""

from __future__ import annotations

import numpy as np

from murho.model.training.proxy_predictor import Proxy


def test_a_line_among_categories_is_learned() -> None:
    generator = np.random.default_rng(0)
    kind = generator.choice(np.array(["a", "b", None], dtype=object), 600)
    x = generator.normal(size=600)
    proxy = Proxy.of({"x": x, "kind": kind}, 3.0 * x + 2.0 * (kind == "a"), dates=())
    errors = proxy.errors(np.arange(400), np.arange(400, 600))
    assert errors.shape == (200,)
    assert errors.mean() < 0.15


def test_rows_nearby_in_time_tell_about_a_walk() -> None:
    generator = np.random.default_rng(0)
    day, x = np.arange(600.0), generator.normal(size=(600, 3))
    walk = np.cumsum(generator.normal(size=600))
    columns = {"day": day, **{f"x{number}": column for number, column in enumerate(x.T)}}
    every_other = np.arange(0, 600, 2)
    with_dates, without = (
        Proxy.of(columns, walk, dates=dates).errors(every_other, every_other + 1).mean() for dates in (("day",), ())
    )
    assert with_dates < 0.5 * without


def test_few_rows_and_constant_or_missing_columns_are_no_obstacle() -> None:
    columns = {"x": np.full(4, 2.0), "z": np.full(4, np.nan)}
    errors = Proxy.of(columns, np.array([1.0, 2.0, 3.0, 4.0]), dates=("z",)).errors(np.arange(1), np.arange(1, 4))
    assert np.isfinite(errors).all()
