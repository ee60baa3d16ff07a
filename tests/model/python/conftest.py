"""Models of a number and of classes, with rows that they have not seen."""

import pyarrow as pa
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.answers import ClassDistribution, NumberDistribution
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table


def flats(rows: int = 12) -> pa.Table:
    """Rows that no model here has seen."""
    return make_table(rows=rows, seed=9)


def asked(posterior: Posterior, rows: int = 12, **options: object) -> tuple[Posterior, pa.Table, PredictOptions]:
    """Questions about `flats`."""
    return posterior, flats(rows), PredictOptions(**{"samples": 64, **options})  # type: ignore[arg-type]


@pytest.fixture
def rents(rent: Posterior) -> NumberDistribution:
    """Rents of `flats`, calibrated."""
    return NumberDistribution(*asked(rent))


@pytest.fixture(scope="session")
def quarter() -> Posterior:
    """Return a model of the district of a flat."""
    options = make_options(
        {"hidden": (8,), "members": 1, "epochs": 15, "encoding": "standard", "temperature": 1.0, "ignore": ("day",)}
    )
    return train(make_table(), "district", options, reporter=Notes()).posterior


@pytest.fixture
def districts(quarter: Posterior) -> ClassDistribution:
    """Districts of `flats`."""
    return ClassDistribution(*asked(quarter))
