"""Caps found in the targets, and limits that the user gives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from murho.model.checkpoint.checkpoint import read_stored, write_checkpoint
from murho.model.errors import OptionError, TableError
from murho.model.predictive.compiled_engine import CompiledEngine
from murho.model.predictive.prediction import PredictOptions
from murho.model.training.options import make_options
from murho.model.training.tasks import is_cap, target_limits
from tests.model.conftest import Notes, present, train_quickly

if TYPE_CHECKING:
    from pathlib import Path

NORMAL = np.random.default_rng(0).normal(size=2_000)


@pytest.mark.parametrize(
    ("targets", "cap"),
    [
        (NORMAL, False),
        (NORMAL.clip(max=2.0), True),  # 2 % of the rows
        (NORMAL.clip(max=2.7), False),  # too few
        (NORMAL.round(1).clip(max=1.0), True),  # rounded, and still more at the end than beside it
        (NORMAL.round(1), False),
        (NORMAL.round(), False),
        (np.repeat(NORMAL, 20), False),  # every row twenty times
        (np.random.default_rng(0).integers(1, 6, 2_000).astype(float), False),  # ratings
        (np.random.default_rng(0).choice([0.0, 1.0], 2_000, p=[0.05, 0.95]), False),
        (-NORMAL.clip(min=0.0), True),  # half of the amounts are zero
        (-np.random.default_rng(0).poisson(9.0, 2_000).astype(float), False),
    ],
)
def test_a_cap_is_a_value_at_the_end_that_is_repeated_as_none_near_it(targets: np.ndarray, cap: bool) -> None:
    assert is_cap(targets) == cap


def test_what_is_found_is_said_with_the_way_to_switch_it_off() -> None:
    notes = Notes()
    limits = present(target_limits(NORMAL.clip(max=2.0), "y", make_options({}), notes.say))
    assert (limits.minimum, limits.maximum) == (-math.inf, 2.0)
    (line,) = notes.lines
    count = int((NORMAL >= 2.0).sum())
    assert line.startswith(f"found a cap: {count} of 2,000 rows have exactly 2, the largest value of 'y'")
    assert line.endswith("--target-maximum inf switches that off")


def test_the_user_has_the_last_word() -> None:
    capped, notes = NORMAL.clip(0.0, 2.0), Notes()
    none = make_options({"target_minimum": -math.inf, "target_maximum": math.inf})
    assert target_limits(capped, "y", none, notes.say) is None
    given = present(target_limits(capped, "y", make_options({"target_minimum": -5, "target_maximum": 7}), notes.say))
    assert (given.minimum, given.maximum) == (-5.0, 7.0)
    assert notes.lines == []
    with pytest.raises(TableError, match=r"row 1: .* lies beyond --target-maximum -9"):
        target_limits(capped, "y", make_options({"target_maximum": -9}), notes.say)


def test_limits_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="must lie below"):
        target_limits(np.array([1.0, np.nan]), "y", make_options({"target_minimum": 1, "target_maximum": 1}), print)


def test_options_without_a_limit_survive_json() -> None:
    options = make_options({"target_maximum": math.inf, "target_minimum": -math.inf})
    assert make_options(options.model_dump(mode="json")) == options
    with pytest.raises(OptionError, match="--target-maximum"):
        make_options({"target_maximum": math.nan})


def test_no_answer_of_a_capped_table_lies_beyond_the_cap(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(700, 2))
    latent = 1.5 + np.sin(2.0 * x[:, 0]) + 0.7 * x[:, 1] + 0.4 * generator.normal(size=700)
    rent = np.minimum(latent, 2.0)
    columns = {"a": x[:, 0], "b": x[:, 1]}
    notes = Notes()
    table = pa.table({"a": x[:400, 0], "b": x[:400, 1], "rent": rent[:400]})
    trained = train_quickly(
        table, notes, columns={}, members=5, noise="heteroscedastic", hidden=(16,), epochs=60, temperature=0.3
    )
    assert any(line.startswith("found a cap") for line in notes.lines)
    posterior = trained.posterior
    fresh = {name: column[400:] for name, column in columns.items()}
    answer = posterior.predict(
        fresh, PredictOptions(percentiles=(5.0, 50.0, 95.0), thresholds=(1.999, 2.0), draws=True)
    )
    for values in (answer.mean, present(answer.percentiles), present(answer.draws)):
        assert values.max() <= 2.0
    assert (present(answer.percentiles)[:, 2] == 2.0).mean() > 0.3
    low, _, high = present(answer.percentiles).T
    assert 0.84 < ((rent[400:] >= low) & (rent[400:] <= high)).mean() < 0.96
    mass, beyond = present(answer.exceedance).T
    assert mass.mean() == pytest.approx((rent[400:] == 2.0).mean(), abs=0.08)
    assert (beyond == 0.0).all()
    for options in (PredictOptions(samples=0), PredictOptions(noise=False)):
        assert posterior.predict(fresh, options).mean.max() <= 2.0
    assert not isinstance(posterior.engine, CompiledEngine)
    spec = read_stored(write_checkpoint(tmp_path, "capped", trained.spec, trained.posterior.tensors)).spec
    assert present(spec.target.limits).maximum == 2.0
    assert spec.to_json()["target"]["limits"] == {"minimum": None, "maximum": 2.0}
