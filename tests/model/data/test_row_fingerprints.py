"""Fingerprints of rows."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.data import row_fingerprints
from murho.model.data.row_fingerprints import Recognised, RowFingerprints, fingerprints_of


def columns_of(rows: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    towns = rng.choice(np.array(["Ulm", "Bonn", None], dtype=object), rows)
    size = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows))
    return {"size": size, "town": towns}, rng.normal(size=rows)


def prints(rows: int, seed: int) -> np.ndarray:
    columns, targets = columns_of(rows, seed)
    return fingerprints_of(columns, ["size", "town"], targets)


def test_a_fingerprint_is_that_of_the_row_whatever_its_place_and_its_precision() -> None:
    columns, targets = columns_of(200, 1)
    order = np.random.default_rng(2).permutation(200)
    shuffled = {name: column[order] for name, column in columns.items()}
    shuffled["size"] = shuffled["size"].astype(np.float32)
    again = fingerprints_of(shuffled, ["size", "town"], targets[order])
    np.testing.assert_array_equal(again, prints(200, 1)[order])
    assert len(set(again.tolist())) == 200


def test_any_other_cell_makes_another_fingerprint() -> None:
    columns, targets = columns_of(50, 1)
    before = prints(50, 1)
    changed = columns | {"town": np.array(["Ems"] * 50, dtype=object)}
    for other in (
        fingerprints_of(changed, ["size", "town"], targets),
        fingerprints_of(columns | {"size": np.arange(50.0)}, ["size", "town"], targets),
        fingerprints_of(columns, ["size", "town"], targets + 1.0),
    ):
        assert not np.isin(other, before).any()
    zeros = [fingerprints_of({"a": np.array([zero])}, ["a"], np.array([1.0]))[0] for zero in (0.0, -0.0)]
    assert zeros[0] == zeros[1]


def test_rows_of_the_table_are_recognised_and_new_ones_are_not() -> None:
    learned = RowFingerprints.from_bytes(RowFingerprints.of(prints(300, 1)).to_bytes())
    assert learned.recognise(prints(300, 1)) == Recognised(300, 300, 0.0)
    fresh = learned.recognise(prints(300, 2))
    assert fresh == Recognised(300, 0, 0.0)
    assert not fresh.is_notable
    mixed = learned.recognise(np.concatenate([prints(300, 1)[:1], prints(300, 2)]))
    assert mixed.is_notable


def test_a_large_table_is_kept_as_a_sample_whose_share_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_fingerprints, "MOST_KEPT", 1000)
    learned = RowFingerprints.of(prints(20_000, 1))
    assert len(learned.rows) == 1000
    found = learned.recognise(np.concatenate([prints(20_000, 1)[:4000], prints(6000, 2)]))
    assert 350 < found.checked < 650  # a twentieth of 10,000
    assert found.equal / found.checked == pytest.approx(0.4, abs=0.1)


def test_rows_that_repeat_by_their_nature_are_no_reason_to_speak() -> None:
    def rolls(seed: int, rows: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        columns = {"first": rng.integers(1, 7, rows).astype(float), "second": rng.integers(1, 7, rows).astype(float)}
        return fingerprints_of(columns, ["first", "second"], rng.integers(0, 2, rows).astype(float))

    learned = RowFingerprints.of(rolls(1, 100))
    found = learned.recognise(rolls(2, 100))
    assert found.equal > 50
    assert not found.is_notable
    assert learned.recognise(rolls(1, 100)).is_notable


def test_after_an_update_the_rows_of_both_tables_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = RowFingerprints.of(prints(100, 1)), RowFingerprints.of(prints(150, 2))
    both = first.joined(second)
    assert both.recognise(np.concatenate([prints(100, 1), prints(150, 2)])).equal == 250
    np.testing.assert_array_equal(first.joined(first).counts, first.counts)
    monkeypatch.setattr(row_fingerprints, "MOST_KEPT", 100)
    sample = RowFingerprints.of(prints(500, 1)).joined(RowFingerprints.of(prints(90, 2)))
    found = sample.recognise(np.concatenate([prints(500, 1), prints(90, 2)]))
    assert found.checked == found.equal > 80


@pytest.mark.parametrize("content", [b"", b"no numbers", np.arange(3).tobytes()])
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises((ValueError, EOFError)):
        RowFingerprints.from_bytes(content)
