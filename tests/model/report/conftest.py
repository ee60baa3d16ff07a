"""A small training with what a report shows, made once."""

from typing import Any

import orjson
import pytest

from murho.model.report.facts import FACTS_PATH, surprising_rows
from murho.model.report.reports import training_report
from murho.model.training.train import Trained
from tests.model.conftest import make_table, train_quickly


@pytest.fixture(scope="session")
def trained() -> Trained:
    """Return a search of two candidates on the table of flats."""
    return train_quickly(make_table(), members=2, noise="auto", epochs=40)


@pytest.fixture(scope="session")
def facts(trained: Trained) -> dict[str, Any]:
    facts: dict[str, Any] = orjson.loads(training_report("rent", trained)[str(FACTS_PATH)])
    return facts


@pytest.fixture(scope="session")
def rows(trained: Trained) -> list[dict[str, Any]]:
    evidence = trained.evidence
    return surprising_rows(evidence.held_out, trained.posterior, evidence.columns, evidence.row_numbers)
