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
    """The answer of a regression for `rows` rows, which have the means 10, 11, …; `start` is the first row's number."""
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
        "warnings": [Problem("9000 is above the range", start + rows - 1, start + rows - 1, "Weight")],
    } | changes


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The answer to `samples=0`."""
    return {**document, "samples": 0, "warnings": [], **dict.fromkeys(keys)}


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
    "warnings": [],
}
MEAN_ONLY = without(
    answer(2), "std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws", "mc_error"
)
MEAN_CLASSES = without(
    CLASSIFIED, "epistemic_std", "entropy", "epistemic_entropy", "percentiles", "prediction_set", "mc_error"
)


class TestOf:
    @given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    def test_answers_join_in_order(self, sizes: list[int]) -> None:
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        joined = Prediction.of([answer(size, start) for size, start in zip(sizes, starts, strict=True)])
        whole = Prediction.of([answer(sum(sizes))])

        assert len(joined) == len(whole) == sum(sizes)
        for name, column in whole.columns().items():
            np.testing.assert_array_equal(joined.columns()[name], column)
        assert [each.row for each in joined.warnings] == [at + size - 1 for at, size in zip(starts, sizes, strict=True)]
        assert joined.mc_error is not None
        assert {name: array.shape[1:] for name, array in joined.mc_error.items()} == {
            "mean": (),
            "std": (),
            "percentiles": (3,),
        }
        assert (joined.levels, joined.thresholds, joined.classes) == ((5, 50, 97.5), (10, 20.5), None)

    def test_a_warning_of_the_whole_request_is_there_once_though_each_part_has_it(self) -> None:
        parts = [answer(2, start, warnings=[Problem("More.")]) for start in (0, 2)]
        assert Prediction.of(parts).warnings == (Problem("More."),)

    def test_with_no_draws_there_are_no_spreads(self) -> None:
        found = Prediction.of([MEAN_ONLY])

        assert [found.std, found.percentiles, found.draws, found.mc_error] == [None] * 4
        assert list(found.columns()) == ["mean"]
        with pytest.raises(ValueError, match="samples=0"):
            found.interval()

    @pytest.mark.parametrize("key", ["model", "target", "samples", "mean"])
    def test_a_missing_key_is_an_error(self, key: str) -> None:
        with pytest.raises(KeyError, match=key):
            Prediction.of([{name: value for name, value in answer().items() if name != key}])

    @pytest.mark.parametrize(
        "wrong",
        [
            answer(std=[1.0]),
            answer(std=[[1.0]] * 3),
            answer(std=[1.0, None, 1.0]),
            answer(std=[1.0, float("inf"), 1.0]),
            answer(draws=[[1.0], [1.0, 2.0], [1.0]]),
            CLASSIFIED | {"probabilities": [[0.5, 0.5]]},
            CLASSIFIED | {"prediction_set": {"coverage": 0.9, "values": [["Adelie"]]}},
            CLASSIFIED | {"percentiles": {"levels": [5], "values": [[0.1], [0.2]]}},
        ],
    )
    def test_arrays_of_another_shape_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"isn't made of|inhomogeneous"):
            Prediction.of([wrong])

    def test_answers_that_differ_do_not_join(self) -> None:
        for change, key in (({"seed": 8}, "seed"), ({"percentiles": None}, "levels")):
            with pytest.raises(ValueError, match=f"differ in {key}"):
                Prediction.of([answer(), answer(**change)])
        with pytest.raises(ValueError, match="3 rows were answered, but 2 have labels"):
            Prediction.of([answer()], np.array(["a", "b"]))


class TestNumbersAskedFor:
    prediction = Prediction.of([answer(percentiles={"levels": [5, 50, 95], "values": [[1, 2, 3]] * 3})])

    def test_an_interval_lies_between_its_percentiles(self) -> None:
        lower, upper = self.prediction.interval(0.9)

        np.testing.assert_array_equal(lower, [1, 1, 1])
        np.testing.assert_array_equal(upper, self.prediction.percentile(95))
        np.testing.assert_array_equal(self.prediction.exceedance(20.5), [0.125] * 3)

    def test_the_message_says_what_to_ask_for(self) -> None:
        with pytest.raises(ValueError, match=re.escape("predict(…, percentiles=(10, 90))")):
            self.prediction.interval(0.8)
        with pytest.raises(ValueError, match=re.escape("predict(…, percentiles=(99.5,))")):
            self.prediction.percentile(99.5)
        with pytest.raises(ValueError, match=re.escape("has 10, 20.5. Ask for them: predict(…, thresholds=(7,))")):
            self.prediction.exceedance(7)

    @pytest.mark.parametrize("coverage", [0, 1, 90, -0.5])
    def test_coverage_is_a_share(self, coverage: float) -> None:
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            self.prediction.interval(coverage)


class TestIndexing:
    prediction = Prediction.of([answer(5, warnings=[Problem("high", 4, "e", "Weight")])], np.array(list("abcde")))

    @pytest.mark.parametrize(
        ("key", "rows"),
        [
            (1, [1]),
            (-1, [4]),
            (slice(None, None, -1), [4, 3, 2, 1, 0]),
            ([4, 0], [4, 0]),
            (np.array([True, False, False, False, True]), [0, 4]),
            (pd.Series([True, False, False, False, True]), [0, 4]),
            ([], []),
        ],
    )
    def test_rows_keep_all_that_is_theirs(self, key: Any, rows: list[int]) -> None:
        found = self.prediction[key]

        assert len(found) == len(rows)
        assert list(found.labels) == [list("abcde")[row] for row in rows]
        np.testing.assert_array_equal(found.mean, self.prediction.mean[rows])
        assert [(warning.row, warning.label) for warning in found.warnings] == [
            (new, "e") for new, old in enumerate(rows) if old == 4
        ]

    def test_there_are_rows_alone(self) -> None:
        for key in (5, (0, 1)):
            with pytest.raises(IndexError):
                self.prediction[key]
        assert [float(row.mean[0]) for row in self.prediction] == [10, 11, 12, 13, 14]
        assert Prediction.of([answer()])[1:].labels.tolist() == [1, 2]


COLUMNS = ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p97.5", "exceedance_10", "exceedance_20.5"]
OF_CLASSES = ["prediction", "p_Adelie", "p_Gentoo", "entropy", "epistemic_entropy", "prediction_set"]


def test_data_frames_have_the_columns_and_pandas_the_index_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    index = pd.Index(["a", "b", "c"], name="car")
    found = Prediction.of([answer()], index)

    pd.testing.assert_index_equal(found.to_pandas().index, index)
    pd.testing.assert_index_equal(found[1:].to_pandas().index, index[1:])
    assert list(Prediction.of([answer()]).to_pandas().index) == [0, 1, 2]
    for one, names in ((found, COLUMNS), (Prediction.of([CLASSIFIED]), OF_CLASSES)):
        assert list(one.to_pandas().columns) == one.to_polars().columns == one.to_arrow().column_names == names
    assert found.to_arrow()["p97.5"].to_pylist() == found.to_polars()["p97.5"].to_list() == [15, 16, 17]
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"to_polars\(\) needs polars. Install it: pip install polars"):
        found.to_polars()


class TestClasses:
    def test_a_class_is_found_by_its_name(self) -> None:
        more = {"draws": [[[0.9, 0.1]] * 3] * 2, "mc_error": {"probabilities": [[0.01, 0.01], [0.02, 0.02]]}}
        found = Prediction.of([CLASSIFIED | more] * 2)

        assert found.classes == ("Adelie", "Gentoo")
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

    def test_what_the_other_kind_of_target_has_is_said(self) -> None:
        with pytest.raises(ValueError, match=r"no class 'gentoo'; there are .'Adelie', 'Gentoo'"):
            Prediction.of([CLASSIFIED]).probability("gentoo")
        with pytest.raises(ValueError, match="is a number, which has no classes"):
            Prediction.of([answer()]).probability("Gentoo")
        with pytest.raises(AttributeError, match="see prediction and probabilities"):
            _ = Prediction.of([CLASSIFIED]).mean

    def test_the_mean_weights_have_prediction_and_probabilities_alone(self) -> None:
        found = Prediction.of([MEAN_CLASSES | {"draws": [[], []]}])

        assert found.prediction is not None
        nothing = (found.epistemic_std, found.entropy, found.epistemic_entropy, found.percentiles, found.prediction_set)
        assert nothing == (None,) * 5
        assert found.draws is not None
        assert found.draws.shape == (2, 0, 0)


def page(document: dict[str, Any]) -> ET.Element:
    return ET.fromstring(Prediction.of([document])._repr_html_())  # noqa: S314  # made right here


class TestDisplay:
    def test_text_is_a_table(self) -> None:
        warnings = [Problem("9000 is above the range", 1, "b", "Weight")]
        shown = Prediction.of([answer(2, exceedance=None, draws=None, warnings=warnings)], np.array(["a", "b"]))
        assert repr(shown).splitlines() == [
            "mpg: 2 rows, cars version 1, 2 samples, seed 7, calibrated",
            "   mean  std  epistemic_std  aleatoric_std   p5   p50  p97.5",
            "a  10.0  2.5            1.5            2.0  6.0  10.0   15.0",
            "b  11.0  2.5            1.5            2.0  7.0  11.0   16.0",
            "1 warning: see .warnings",
            "  row 1 (index 'b'), Weight: 9000 is above the range",
        ]
        lines = repr(Prediction.of([CLASSIFIED])).splitlines()
        assert lines[2].split() == ["0", "Adelie", "0.960", "0.040", "0.190", "0.040", "Adelie"]

    def test_a_long_table_is_shortened(self) -> None:
        lines = repr(Prediction.of([answer(1000, warnings=[])])).splitlines()

        assert lines[0].startswith("mpg: 1,000 rows")
        assert len(lines) == 13
        assert set(lines[7].split()) == {"…"}

    @pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e-3, 1, 1e6, 1e12, 1e300])
    def test_numbers_of_any_size_are_short(self, scale: float) -> None:
        names = ("mean", "std", "epistemic_std")
        numbers: dict[str, Any] = {name: [value * scale for value in answer()[name]] for name in names}
        rows = repr(Prediction.of([answer(**numbers)])).splitlines()[2:5]

        assert all(len(cell) <= 16 for row in rows for cell in row.split()[:4])

    def test_each_row_has_an_error_bar_on_one_scale(self) -> None:
        # The mean less its epistemic std is far below the lowest percentile: the bar holds the thick part all the same.
        for epistemic in (1.5, 90.0):
            bars = list(page(answer(epistemic_std=[epistemic] * 3)).iter("svg"))
            ends = np.array([[float(line.get("x1", "")) for line in bar.iter("line")] for bar in bars])
            assert ends.shape == (3, 4)
            assert ends.min() >= 0
            assert ends.max() <= 220
            assert (np.diff(ends, axis=0) > 0).all()
        for bar in bars:
            whole, _, _, thick = bar.iter("line")
            assert (thick.get("x1"), thick.get("x2")) == (whole.get("x1"), whole.get("x2"))

    def test_a_class_has_the_error_bar_of_its_probability(self) -> None:
        found = page(CLASSIFIED)
        whole = [[float(bar[0][0].get(end, "")) for end in ("x1", "x2")] for bar in found.iter("svg")]
        dots = [float(dot.get("cx", "")) for dot in found.iter("circle")]

        np.testing.assert_allclose(whole, 6 + 208 * np.array([[0.88, 0.99], [0.6, 0.9]]), atol=0.06)
        np.testing.assert_allclose(dots, 6 + 208 * np.array([0.96, 0.75]), atol=0.06)
        assert "p5 to p95" in "".join(found.itertext())
        assert page({**CLASSIFIED, "percentiles": None}).find(".//svg") is not None

    def test_of_many_classes_the_likeliest_is_shown(self) -> None:
        names = [f"class {index}" for index in range(40)]
        table = np.full((2, 40), 0.5 / 39)
        table[[0, 1], [3, 7]] = 0.5
        wide = MEAN_CLASSES | {"classes": names, "prediction": ["class 3", "class 7"], "probabilities": table.tolist()}
        lines = repr(Prediction.of([wide])).splitlines()

        assert lines[1].split() == ["prediction", "probability"]
        assert lines[2].split() == ["0", "class", "3", "0.500"]

    def test_a_prediction_of_no_rows_or_no_draws_is_shown(self) -> None:
        empty = Prediction.of([answer()])[:0]
        assert "mpg: 0 rows" in repr(empty)
        assert "0 rows" in empty._repr_html_()
        for document in (MEAN_ONLY, MEAN_CLASSES):
            assert "mean weights only" in repr(Prediction.of([document]))
            assert page(document).find(".//svg") is None

    @pytest.mark.parametrize("shown", [answer(), answer(40), MEAN_ONLY, CLASSIFIED, answer(percentiles=None)])
    def test_the_notebook_table_is_well_formed(self, shown: dict[str, Any]) -> None:
        assert len({len(row) for row in page(shown).iter("tr")}) == 1

    def test_names_are_text_and_no_markup(self) -> None:
        evil = "<script>alert(1)</script>"
        shown = Prediction.of([answer(1, target=evil, warnings=[Problem(evil, 0, evil, "x")])], np.array([evil]))

        assert "<script" not in shown._repr_html_()
        assert unescape(shown._repr_html_()).count(evil) == 4


@pytest.mark.parametrize(
    ("document", "rows"), [(answer(), 3), (without(answer(), "std", "percentiles"), 3), (CLASSIFIED, 2)]
)
def test_a_prediction_is_a_chart(document: dict[str, Any], rows: int) -> None:
    assert len(Prediction.of([document]).plot().to_dict()["data"]["values"]) == rows
