"""A small training with what a report shows, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from murho.model.bbb.rows import select_rows
from murho.model.report.facts import facts_of_training
from murho.model.report.held_out_facts import shown_rows
from tests.model.conftest import make_table, train_quickly

if TYPE_CHECKING:
    from murho.model.training.train import Trained


@pytest.fixture(scope="session")
def trained() -> Trained:
    """A search of two candidates on the table of flats."""
    return train_quickly(make_table(), members=2, noise="auto", epochs=40)


@pytest.fixture(scope="session")
def facts(trained: Trained) -> dict[str, Any]:
    return facts_of_training(trained)


@pytest.fixture(scope="session")
def rows(trained: Trained) -> dict[str, Any]:
    evidence = trained.evidence
    held_out = evidence.held_out
    columns = select_rows(evidence.columns, held_out.rows)
    return shown_rows(held_out, trained.spec.schema, columns, evidence.row_numbers[held_out.rows])
