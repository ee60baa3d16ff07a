"""Predictions: arrays from the answers of consecutive requests, and how they are shown and handed on."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from murho_client import Prediction, Problem

LEVELS = [5, 50, 97.5]


def answer(rows: int = 3, start: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a regression's answer for `rows` rows with the means 10, 11, …; `start` is the first row's number."""
    mean = [10.0 + start + row for row in range(rows)]
    return {
        "model": {"name": "cars", "version": "1"},
        "target": "mpg",
        "samples": 2,
        "seed": 7,
        "mean": mean,
        "std": [2.5] * rows,
        "epistemic_std": [1.5] * rows,
        "aleatoric_std": [2.0] * rows,
        "percentiles": {"levels": LEVELS, "values": [[value - 4, value, value + 5] for value in mean]},
        "exceedance": {"thresholds": [10, 20.5], "values": [[0.5, 0.125]] * rows},
        "draws": [[value, value + 1] for value in mean],
        "mc_error": {"mean": [0.1] * rows, "std": [0.2] * rows, "percentiles": [[0.1, 0.2, 0.3]] * rows},
        "calibrated": True,
        "extrapolation": [False] * (rows - 1) + [True],
        "warnings": [Problem("9000 is above the range", start + rows - 1, start + rows - 1, "Weight")],
    } | changes


def without_draws(document: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to `samples=0`."""
    kept = {"model", "target", "seed", "mean", "classes", "prediction", "probabilities", "calibrated", "extrapolation"}
    return document | dict.fromkeys(document.keys() - kept) | {"samples": 0, "warnings": []}


CLASSIFIED: dict[str, Any] = {
    "model": {"name": "penguins", "version": "1"},
    "target": "species",
    "samples": 256,
    "seed": 0,
    "classes": ["Adelie", "Gentoo"],
    "prediction": ["Adelie", "Gentoo"],
    "probabilities": [[0.96, 0.04], [0.25, 0.75]],
    "epistemic_std": [[0.03, 0.03], [0.1, 0.1]],
    "entropy": [0.19, 0.56],
    "epistemic_entropy": [0.04, 0.1],
    "percentiles": {"levels": [5, 95], "values": [[[0.88, 0.99], [0.01, 0.1]], [[0.1, 0.4], [0.6, 0.9]]]},
    "prediction_set": {"coverage": 0.9, "values": [["Adelie"], ["Adelie", "Gentoo"]]},
    "calibrated": True,
    "extrapolation": [False, True],
    "warnings": [],
}
MEAN_ONLY, MEAN_CLASSES = without_draws(answer(2)), without_draws(CLASSIFIED)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_answers_join_in_order(sizes: list[int]) -> None:
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    more = Problem("More.")  # of a whole request, so it is there once
    parts = [answer(size, start) for size, start in zip(sizes, starts, strict=True)]
    joined = Prediction.of([part | {"warnings": [*part["warnings"], more]} for part in parts])
    whole = Prediction.of([answer(sum(sizes))])
    assert len(joined) == len(whole) == sum(sizes)
    for name, column in whole.columns().items():
        np.testing.assert_array_equal(joined.columns()[name], column)
    rows = [at + size - 1 for at, size in zip(starts, sizes, strict=True)]
    assert [each.row for each in joined.warnings if each != more] == rows
    assert np.flatnonzero(joined.extrapolation).tolist() == rows
    assert joined.warnings.count(more) == 1
    assert joined.mc_error is not None
    assert {name: array.shape[1:] for name, array in joined.mc_error.items()} == {
        "mean": (),
        "std": (),
        "percentiles": (3,),
    }
    assert (joined.levels, joined.thresholds, joined.classes) == ((5, 50, 97.5), (10, 20.5), None)


@pytest.mark.parametrize(
    "wrong",
    [
        answer(std=[1.0]),
        answer(std=[[1.0]] * 3),
        answer(std=[1.0, None, 1.0]),
        answer(draws=[[1.0], [1.0, 2.0], [1.0]]),
        CLASSIFIED | {"prediction_set": {"coverage": 0.9, "values": [["Adelie"]]}},
    ],
)
def test_arrays_of_another_shape_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"isn't made of|inhomogeneous"):
        Prediction.of([wrong])


def test_answers_that_do_not_fit_together_are_refused() -> None:
    for key in ("model", "samples", "mean"):
        with pytest.raises(KeyError, match=key):
            Prediction.of([{name: value for name, value in answer().items() if name != key}])
    with pytest.raises(ValueError, match="differ in levels"):
        Prediction.of([answer(), answer(percentiles=None)])
    with pytest.raises(ValueError, match="3 rows were answered, but 2 have labels"):
        Prediction.of([answer()], np.array(["a", "b"]))


def test_what_was_asked_for_is_found_and_the_message_says_what_to_ask_for() -> None:
    found = Prediction.of([answer(percentiles={"levels": [5, 50, 95], "values": [[1, 2, 3]] * 3})])
    lower, upper = found.interval(0.9)
    np.testing.assert_array_equal(lower, [1, 1, 1])
    np.testing.assert_array_equal(upper, found.percentile(95))
    np.testing.assert_array_equal(found.exceedance(20.5), [0.125] * 3)
    with pytest.raises(ValueError, match=re.escape("predict(…, percentiles=(10, 90))")):
        found.interval(0.8)
    with pytest.raises(ValueError, match=re.escape("has 10, 20.5. Ask for them: predict(…, thresholds=(7,))")):
        found.exceedance(7)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        found.interval(90)
    bare = Prediction.of([MEAN_ONLY])
    assert [bare.std, bare.percentiles, bare.draws, bare.mc_error] == [None] * 4
    assert list(bare.columns()) == ["mean"]
    with pytest.raises(ValueError, match="samples=0"):
        bare.interval()


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (-1, [4]),
        (slice(None, None, -1), [4, 3, 2, 1, 0]),
        ([4, 0], [4, 0]),
        (pd.Series([True, False, False, False, True]), [0, 4]),
        ([], []),
    ],
)
def test_rows_keep_all_that_is_theirs(key: Any, rows: list[int]) -> None:
    prediction = Prediction.of([answer(5, warnings=[Problem("high", 4, "e", "Weight")])], np.array(list("abcde")))
    found = prediction[key]
    assert len(found) == len(rows)
    assert list(found.labels) == [list("abcde")[row] for row in rows]
    np.testing.assert_array_equal(found.mean, prediction.mean[rows])
    np.testing.assert_array_equal(found.extrapolation, np.array(rows) == 4)
    marked = [(new, "e") for new, old in enumerate(rows) if old == 4]
    assert [(warning.row, warning.label) for warning in found.warnings] == marked


def test_there_are_rows_alone() -> None:
    prediction = Prediction.of([answer()])
    for key in (5, (0, 1)):
        with pytest.raises(IndexError):
            prediction[key]
    assert [float(row.mean[0]) for row in prediction] == [10, 11, 12]
    assert prediction[1:].labels.tolist() == [1, 2]


COLUMNS = ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p97.5", "exceedance_10", "exceedance_20.5"]
OF_CLASSES = ["prediction", "p_Adelie", "p_Gentoo", "entropy", "epistemic_entropy", "prediction_set"]


def test_data_frames_have_the_columns_and_pandas_the_index_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    index = pd.Index(["a", "b", "c"], name="car")
    found = Prediction.of([answer()], index)
    pd.testing.assert_index_equal(found[1:].to_pandas().index, index[1:])
    for one, names in ((found, COLUMNS), (Prediction.of([CLASSIFIED]), OF_CLASSES)):
        assert list(one.to_pandas().columns) == one.to_polars().columns == one.to_arrow().column_names == names
    assert found.to_arrow()["p97.5"].to_pylist() == found.to_polars()["p97.5"].to_list() == [15, 16, 17]
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"to_polars\(\) needs polars. Install it: pip install polars"):
        found.to_polars()


def test_a_class_is_found_by_its_name() -> None:
    more = {"draws": [[[0.9, 0.1]] * 3] * 2, "mc_error": {"probabilities": [[0.01, 0.01], [0.02, 0.02]]}}
    found = Prediction.of([CLASSIFIED | more] * 2)
    assert found.prediction is not None
    assert found.prediction.tolist() == ["Adelie", "Gentoo"] * 2
    assert (found.coverage, found.prediction_set) == (0.9, (("Adelie",), ("Adelie", "Gentoo")) * 2)
    np.testing.assert_array_equal(found.probability("Gentoo"), [0.04, 0.75] * 2)
    np.testing.assert_array_equal(found.percentile(95)[:2], [[0.99, 0.1], [0.4, 0.9]])
    np.testing.assert_array_equal(found.interval(0.9)[1][1], [0.4, 0.9])
    assert found.draws is not None
    assert found.draws.shape == (4, 3, 2)
    assert found.mc_error is not None
    assert found.mc_error["probabilities"].shape == (4, 2)
    bare = Prediction.of([MEAN_CLASSES | {"draws": [[], []]}])
    assert (bare.epistemic_std, bare.entropy, bare.epistemic_entropy, bare.prediction_set) == (None,) * 4
    assert bare.draws is not None
    assert bare.draws.shape == (2, 0, 0)


def test_what_the_other_kind_of_target_has_is_said() -> None:
    with pytest.raises(ValueError, match=r"no class 'gentoo'; there are .'Adelie', 'Gentoo'"):
        Prediction.of([CLASSIFIED]).probability("gentoo")
    with pytest.raises(ValueError, match="is a number, which has no classes"):
        Prediction.of([answer()]).probability("Gentoo")
    with pytest.raises(AttributeError, match="see prediction and probabilities"):
        _ = Prediction.of([CLASSIFIED]).mean


def page(document: dict[str, Any]) -> ET.Element:
    return ET.fromstring(Prediction.of([document])._repr_html_())  # noqa: S314  # made right here


def bars(document: dict[str, Any]) -> np.ndarray:
    """Where each bar begins and ends, where its thick part does, and where its dot is, ``[B, 5]``."""
    numbers = [re.findall(r"[MH](\S+)", path.get("d", "")) for path in page(document).iter("path")]
    dots = [[dot.get("cx")] for dot in page(document).iter("circle")]
    return np.hstack([np.array(part, dtype=float) for part in (numbers[::2], numbers[1::2], dots)])


def test_text_is_a_table_and_a_long_one_is_shortened() -> None:
    warnings = [Problem("9000 is above the range", 1, "b", "Weight")]
    shown = Prediction.of([answer(2, exceedance=None, draws=None, warnings=warnings)], np.array(["a", "b"]))
    assert repr(shown).splitlines() == [
        "mpg: 2 rows, cars version 1, 2 samples, seed 7, calibrated, 1 row extrapolates",
        "   mean  std  epistemic_std  aleatoric_std   p5   p50  p97.5",
        "a  10.0  2.5            1.5            2.0  6.0  10.0   15.0",
        "b  11.0  2.5            1.5            2.0  7.0  11.0   16.0",
        "1 warning: see .warnings",
        "  row 1 (index 'b'), Weight: 9000 is above the range",
    ]
    lines = repr(Prediction.of([CLASSIFIED])).splitlines()
    assert lines[2].split() == ["0", "Adelie", "0.960", "0.040", "0.190", "0.040", "Adelie"]
    lines = repr(Prediction.of([answer(1000, warnings=[])])).splitlines()
    assert lines[0].startswith("mpg: 1,000 rows")
    assert "extrapolate" not in repr(shown[0])
    assert repr(shown[[1, 1]]).splitlines()[0].endswith(", 2 rows extrapolate")
    assert len(lines) == 13
    assert set(lines[7].split()) == {"…"}
    assert lines[8].split()[:2] == ["995", "1005.0"]


def test_each_row_has_an_error_bar_on_one_scale() -> None:
    # The mean less its epistemic std is far below the lowest percentile: the bar holds the thick part all the same.
    for epistemic in (1.5, 90.0):
        found = bars(answer(epistemic_std=[epistemic] * 3))
        assert found.shape == (3, 5)
        assert ((found >= 0) & (found <= 220)).all()
        assert (np.diff(found, axis=0) > 0).all()
    np.testing.assert_array_equal(found[:, :2], found[:, 2:4])
    of_classes = 6 + 208 * np.array([[0.88, 0.99, 0.96], [0.6, 0.9, 0.75]])
    np.testing.assert_allclose(bars(CLASSIFIED)[:, [0, 1, 4]], of_classes, atol=0.06)
    assert "p5 to p95" in "".join(page(CLASSIFIED).itertext())
    assert len(bars({**CLASSIFIED, "percentiles": None})) == 2
    for document in (MEAN_ONLY, MEAN_CLASSES):
        assert "mean weights only" in repr(Prediction.of([document]))
        assert page(document).find(".//svg") is None


def test_of_many_classes_the_likeliest_is_shown() -> None:
    names = [f"class {index}" for index in range(40)]
    table = np.full((2, 40), 0.5 / 39)
    table[[0, 1], [3, 7]] = 0.5
    wide = MEAN_CLASSES | {"classes": names, "prediction": ["class 3", "class 7"], "probabilities": table.tolist()}
    lines = repr(Prediction.of([wide])).splitlines()
    assert lines[1].split() == ["prediction", "probability"]
    assert lines[2].split() == ["0", "class", "3", "0.500"]


def test_the_notebook_table_is_well_formed_and_names_are_no_markup() -> None:
    for shown in (answer(), answer(40), MEAN_ONLY, CLASSIFIED, answer(percentiles=None)):
        assert len({len(row) for row in page(shown).iter("tr")}) == 1
    assert "0 rows" in Prediction.of([answer()])[:0]._repr_html_()
    evil = "<script>alert(1)</script>"
    found = Prediction.of([answer(1, target=evil, warnings=[Problem(evil, 0, evil, "x")])], np.array([evil]))
    assert "<script" not in found._repr_html_()
    assert unescape(found._repr_html_()).count(evil) == 4


def test_a_prediction_is_a_chart() -> None:
    for document, rows in ((answer(), 3), (MEAN_ONLY, 2), (CLASSIFIED, 2)):
        assert len(Prediction.of([document]).plot().to_dict()["data"]["values"]) == rows
