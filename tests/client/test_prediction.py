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
from murho_client._data import Labels
from murho_client._prediction import Prediction, PredictionWarning

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
        "warnings": [{"pointer": f"/inputs/Weight/{rows - 1}", "message": "Weight: 9000 is above the range"}],
    } | changes


def mean_only(rows: int = 2) -> dict[str, Any]:
    """The answer to `samples=0`."""
    spreads = ["std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws", "mc_error"]
    nothing: dict[str, Any] = dict.fromkeys(spreads)
    return answer(rows, samples=0, warnings=[], **nothing)


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


def of_mean_weights(**changes: Any) -> dict[str, Any]:
    """A classifier's answer to `samples=0`."""
    spreads = ["epistemic_std", "entropy", "epistemic_entropy", "percentiles", "prediction_set", "mc_error"]
    return {**CLASSIFIED, "samples": 0, **dict.fromkeys(spreads), **changes}


class TestOf:
    def test_one_answer_has_all_arrays(self) -> None:
        found = Prediction.of([answer()])

        assert (found.model, found.version, found.target, found.samples, found.seed) == ("cars", "1", "mpg", 2, 7)
        assert found.calibrated
        assert found.levels == (5, 50, 97.5)
        assert found.thresholds == (10, 20.5)
        np.testing.assert_array_equal(found.mean, [10, 11, 12])
        assert found.std is not None
        assert found.percentiles is not None
        assert found.draws is not None
        assert found.mc_error is not None
        assert (found.std.shape, found.percentiles.shape, found.draws.shape) == ((3,), (3, 3), (3, 2))
        assert {name: array.shape for name, array in found.mc_error.items()} == {
            "mean": (3,),
            "std": (3,),
            "percentiles": (3, 3),
        }
        assert found.classes is None

    @given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    def test_answers_join_in_order(self, sizes: list[int]) -> None:
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        joined = Prediction.of([answer(size, start) for size, start in zip(sizes, starts, strict=True)])
        whole = Prediction.of([answer(sum(sizes))])

        assert len(joined) == len(whole)
        for name, column in whole.columns().items():
            np.testing.assert_array_equal(joined.columns()[name], column)
        assert [warning.row for warning in joined.warnings] == [
            start + size - 1 for start, size in zip(starts, sizes, strict=True)
        ]

    def test_with_no_draws_there_are_no_spreads(self) -> None:
        found = Prediction.of([mean_only()])

        assert [found.std, found.percentiles, found.draws, found.mc_error] == [None] * 4
        assert list(found.columns()) == ["mean"]
        with pytest.raises(ValueError, match="samples=0"):
            found.interval()

    def test_what_was_not_asked_for_is_none(self) -> None:
        bare = {name: value for name, value in answer().items() if name not in ("percentiles", "exceedance", "draws")}

        assert Prediction.of([bare]).percentiles is None

    def test_classes_have_probabilities(self) -> None:
        found = Prediction.of([CLASSIFIED, CLASSIFIED])

        assert found.classes == ("Adelie", "Gentoo")
        assert found.prediction is not None
        assert found.prediction.tolist() == ["Adelie", "Gentoo"] * 2
        assert found.percentiles is not None
        assert found.percentiles.shape == (4, 2, 2)
        assert found.prediction_set == (("Adelie",), ("Adelie", "Gentoo")) * 2
        assert found.coverage == 0.9
        np.testing.assert_array_equal(found.interval(0.9)[1][1], [0.4, 0.9])
        with pytest.raises(AttributeError, match="probabilities"):
            _ = found.mean

    @pytest.mark.parametrize("key", ["model", "target", "samples", "mean"])
    def test_a_missing_key_is_an_error(self, key: str) -> None:
        with pytest.raises(KeyError, match=key):
            Prediction.of([{name: value for name, value in answer().items() if name != key}])

    @pytest.mark.parametrize(
        "change",
        [
            {"std": [1.0]},
            {"std": [[1.0]] * 3},
            {"std": [1.0, None, 1.0]},
            {"std": [1.0, float("inf"), 1.0]},
            {"draws": [[1.0], [1.0, 2.0], [1.0]]},
        ],
    )
    def test_arrays_of_another_shape_are_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"std|draws|inhomogeneous"):
            Prediction.of([answer(**change)])

    @pytest.mark.parametrize(
        "change", [{"seed": 8}, {"model": {"name": "cars", "version": "2"}}, {"percentiles": None}]
    )
    def test_answers_that_differ_do_not_join(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=f"differ in {next(iter(change))}"):
            Prediction.of([answer(), answer(**change)])

    def test_there_is_a_label_for_each_row(self) -> None:
        with pytest.raises(ValueError, match="3 rows were answered, but 2 have labels"):
            Prediction.of([answer()], ["a", "b"])


@pytest.mark.parametrize(
    ("pointer", "message", "expected"),
    [
        ("/inputs/Weight/2", "Weight: high", (2, "c", "Weight", "high")),
        ("/inputs/2/Weight", "Weight: high", (2, "c", "Weight", "high")),
        ("/inputs/2/0", "Weight: high", (2, "c", "Weight", "high")),
        ("/inputs/1/2", "1: high", (2, "c", "1", "high")),
        ("/inputs/km~1h/0", "km/h: high", (0, "a", "km/h", "high")),
        ("/inputs", "More values are unlike", (None, None, None, "More values are unlike")),
        ("/inputs/Weight/9", "Weight: high", (None, None, "Weight", "high")),
    ],
)
def test_a_warning_is_placed_in_the_data_as_given(pointer: str, message: str, expected: tuple[Any, ...]) -> None:
    found = Prediction.of([answer(warnings=[{"pointer": pointer, "message": message}])], ["a", "b", "c"])

    assert found.warnings == (PredictionWarning(*expected),)


def test_a_warning_reads_as_a_sentence() -> None:
    assert str(PredictionWarning(2, "c", "Weight", "high")) == "row 'c', Weight: high"
    assert str(PredictionWarning(None, None, None, "high")) == "high"


class TestNumbersAskedFor:
    prediction = Prediction.of([answer(percentiles={"levels": [5, 50, 95], "values": [[1, 2, 3]] * 3})])

    def test_an_interval_lies_between_its_percentiles(self) -> None:
        lower, upper = self.prediction.interval(0.9)

        np.testing.assert_array_equal(lower, [1, 1, 1])
        np.testing.assert_array_equal(upper, self.prediction.percentile(95))

    def test_the_message_says_which_percentiles_to_ask_for(self) -> None:
        with pytest.raises(ValueError, match=re.escape("predict(…, percentiles=(10, 90))")):
            self.prediction.interval(0.8)
        with pytest.raises(ValueError, match=re.escape("predict(…, percentiles=(99.5,))")):
            self.prediction.percentile(99.5)

    @pytest.mark.parametrize("coverage", [0, 1, 90, -0.5])
    def test_coverage_is_a_share(self, coverage: float) -> None:
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            self.prediction.interval(coverage)

    def test_a_probability_for_each_threshold(self) -> None:
        np.testing.assert_array_equal(self.prediction.exceedance(20.5), [0.125] * 3)
        with pytest.raises(
            ValueError, match=re.escape("the thresholds are 10, 20.5. Ask for it: predict(…, thresholds=(7,))")
        ):
            self.prediction.exceedance(7)


class TestIndexing:
    prediction = Prediction.of([answer(5)], list("abcde"))

    @pytest.mark.parametrize(
        ("key", "rows"),
        [
            (1, [1]),
            (-1, [4]),
            (slice(1, 3), [1, 2]),
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
        assert found.labels == [list("abcde")[row] for row in rows]
        np.testing.assert_array_equal(found.mean, self.prediction.mean[rows])
        assert [(warning.row, warning.label) for warning in found.warnings] == [
            (new, "e") for new, old in enumerate(rows) if old == 4
        ]

    def test_a_row_that_is_not_there_is_an_error(self) -> None:
        with pytest.raises(IndexError):
            self.prediction[5]

    def test_it_has_one_dimension(self) -> None:
        with pytest.raises(IndexError):
            self.prediction[0, 1]

    def test_iteration_gives_rows(self) -> None:
        assert [float(row.mean[0]) for row in self.prediction] == [10, 11, 12, 13, 14]

    def test_a_row_without_a_label_is_known_by_its_number(self) -> None:
        assert Prediction.of([answer()])[1:].labels == [1, 2]


COLUMNS = ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p97.5", "exceedance_10", "exceedance_20.5"]


class TestDataFrames:
    def test_pandas_has_the_index_of_the_data(self) -> None:
        index = pd.Index(["a", "b", "c"], name="car")
        found = Prediction.of([answer()], Labels(index))

        assert list(found.to_pandas().columns) == COLUMNS
        pd.testing.assert_index_equal(found.to_pandas().index, index)
        pd.testing.assert_index_equal(found[1:].to_pandas().index, index[1:])
        assert list(Prediction.of([answer()]).to_pandas().index) == [0, 1, 2]

    def test_polars_and_arrow_have_the_same_columns(self) -> None:
        found = Prediction.of([answer()])

        assert found.to_polars().columns == found.to_arrow().column_names == COLUMNS
        assert found.to_polars()["p97.5"].to_list() == [15, 16, 17]
        assert found.to_arrow()["p97.5"].to_pylist() == [15, 16, 17]

    def test_a_classifier_has_a_column_for_each_class(self) -> None:
        found = Prediction.of([CLASSIFIED])
        columns = ["prediction", "p_Adelie", "p_Gentoo", "entropy", "epistemic_entropy", "prediction_set"]

        assert list(found.to_pandas().columns) == found.to_polars().columns == found.to_arrow().column_names == columns
        assert found.to_arrow()["prediction_set"].to_pylist() == [["Adelie"], ["Adelie", "Gentoo"]]

    def test_a_package_that_is_not_there_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "polars", None)

        with pytest.raises(ImportError, match=r"to_polars\(\) needs polars. Install it: pip install polars"):
            Prediction.of([answer()]).to_polars()


class TestClasses:
    def test_the_probability_of_a_class_is_found_by_its_name(self) -> None:
        found = Prediction.of([CLASSIFIED])

        np.testing.assert_array_equal(found.probability("Gentoo"), [0.04, 0.75])
        np.testing.assert_array_equal(found[1].probability("Gentoo"), [0.75])
        np.testing.assert_array_equal(found.percentile(95), [[0.99, 0.1], [0.4, 0.9]])

    def test_a_class_that_there_is_not_is_told_with_those_that_there_are(self) -> None:
        with pytest.raises(ValueError, match="no class 'gentoo'; there are 'Adelie', 'Gentoo'"):
            Prediction.of([CLASSIFIED]).probability("gentoo")
        with pytest.raises(ValueError, match="is a number, which has no classes"):
            Prediction.of([answer()]).probability("Gentoo")

    def test_a_class_has_a_set_and_no_mean(self) -> None:
        found = Prediction.of([CLASSIFIED])

        assert found.coverage == 0.9
        assert found.prediction_set == (("Adelie",), ("Adelie", "Gentoo"))
        with pytest.raises(AttributeError, match="see prediction and probabilities"):
            _ = found.mean

    def test_the_mean_weights_have_prediction_and_probabilities_alone(self) -> None:
        found = Prediction.of([of_mean_weights(draws=[[], []])])

        assert found.prediction is not None
        assert found.prediction.tolist() == ["Adelie", "Gentoo"]
        nothing = (found.epistemic_std, found.entropy, found.epistemic_entropy, found.percentiles, found.prediction_set)
        assert nothing == (None,) * 5
        assert found.draws is not None
        assert found.draws.shape == (2, 0, 0)
        assert "mean weights only" in repr(found)

    def test_errors_and_draws_have_an_axis_of_classes(self) -> None:
        more = {"draws": [[[0.9, 0.1]] * 3] * 2, "mc_error": {"probabilities": [[0.01, 0.01], [0.02, 0.02]]}}
        found = Prediction.of([CLASSIFIED | more])

        assert found.draws is not None
        assert found.draws.shape == (2, 3, 2)
        assert found.mc_error is not None
        np.testing.assert_array_equal(found.mc_error["probabilities"], [[0.01, 0.01], [0.02, 0.02]])

    @pytest.mark.parametrize(
        "wrong",
        [
            {"probabilities": [[0.5, 0.5]]},
            {"prediction_set": {"coverage": 0.9, "values": [["Adelie"]]}},
            {"percentiles": {"levels": [5], "values": [[0.1], [0.2]]}},
        ],
    )
    def test_an_array_of_another_shape_is_no_answer(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="isn't made of 2"):
            Prediction.of([CLASSIFIED | wrong])


class TestDisplay:
    def test_text_is_a_table(self) -> None:
        assert repr(Prediction.of([answer(2, exceedance=None, draws=None)], ["a", "b"])).splitlines() == [
            "mpg: 2 rows, cars version 1, 2 samples, seed 7, calibrated",
            "   mean  std  epistemic_std  aleatoric_std   p5   p50  p97.5",
            "a  10.0  2.5            1.5            2.0  6.0  10.0   15.0",
            "b  11.0  2.5            1.5            2.0  7.0  11.0   16.0",
            "1 warning: see .warnings",
            "  row 'b', Weight: 9000 is above the range",
        ]

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

    def test_one_class_a_row(self) -> None:
        lines = repr(Prediction.of([CLASSIFIED])).splitlines()

        assert lines[2].split() == ["0", "Adelie", "0.960", "0.040", "0.190", "0.040", "Adelie"]

    def test_each_row_has_the_error_bar_of_its_likeliest_class(self) -> None:
        page = ET.fromstring(Prediction.of([CLASSIFIED])._repr_html_())  # noqa: S314  # made right here
        whole = [[float(bar[0][0].get(end, "")) for end in ("x1", "x2")] for bar in page.iter("svg")]
        dots = [float(dot.get("cx", "")) for dot in page.iter("circle")]

        np.testing.assert_allclose(whole, 6 + 208 * np.array([[0.88, 0.99], [0.6, 0.9]]), atol=0.06)
        np.testing.assert_allclose(dots, 6 + 208 * np.array([0.96, 0.75]), atol=0.06)
        assert "p5 to p95" in Prediction.of([CLASSIFIED])._repr_html_()
        assert "<svg" in Prediction.of([{**CLASSIFIED, "percentiles": None}])._repr_html_()
        assert "<svg" not in Prediction.of([of_mean_weights()])._repr_html_()

    def test_of_many_classes_the_likeliest_is_shown(self) -> None:
        count = 40
        names = [f"class {index}" for index in range(count)]
        table = np.full((2, count), 0.5 / (count - 1))
        table[[0, 1], [3, 7]] = 0.5
        wide = of_mean_weights(classes=names, prediction=["class 3", "class 7"], probabilities=table.tolist())
        lines = repr(Prediction.of([wide])).splitlines()

        assert lines[1].split() == ["prediction", "probability"]
        assert lines[2].split() == ["0", "class", "3", "0.500"]

    def test_a_prediction_of_no_rows_or_no_draws_is_shown(self) -> None:
        assert "mpg: 0 rows" in repr(Prediction.of([answer()])[:0])
        assert "0 rows" in Prediction.of([answer()])[:0]._repr_html_()
        assert "mean weights only" in repr(Prediction.of([mean_only()]))
        assert "<svg" not in Prediction.of([mean_only()])._repr_html_()

    @pytest.mark.parametrize("shown", [answer(), answer(40), mean_only(), CLASSIFIED, answer(percentiles=None)])
    def test_the_notebook_table_is_well_formed(self, shown: dict[str, Any]) -> None:
        page = ET.fromstring(Prediction.of([shown])._repr_html_())  # noqa: S314  # made right here
        widths = {sum(int(cell.get("colspan", 1)) for cell in row) for row in page.iter("tr")}

        assert len(widths) == 1

    def test_each_row_has_an_error_bar_on_one_scale(self) -> None:
        page = ET.fromstring(Prediction.of([answer()])._repr_html_())  # noqa: S314  # made right here
        bars = [[float(line.get("x1", "")) for line in bar.iter("line")] for bar in page.iter("svg")]
        dots = [float(dot.get("cx", "")) for dot in page.iter("circle")]

        assert len(bars) == len(dots) == 3
        assert dots == sorted(dots)
        assert all(0 <= place <= 220 for bar in bars for place in bar)

    def test_a_bar_holds_its_epistemic_part(self) -> None:
        # A skewed answer: the mean less its epistemic std is far below the lowest percentile.
        shown = Prediction.of([answer(epistemic_std=[90.0] * 3, std=[91.0] * 3)])
        page = ET.fromstring(shown._repr_html_())  # noqa: S314  # made right here
        for bar in page.iter("svg"):
            whole, _, _, epistemic = bar.iter("line")
            assert epistemic.get("x1") == whole.get("x1")
            assert epistemic.get("x2") == whole.get("x2")

    def test_names_are_text_and_no_markup(self) -> None:
        evil = "<script>alert(1)</script>"
        warning = {"pointer": "/inputs/x/0", "message": f"x: {evil}"}
        page = Prediction.of([answer(1, target=evil, warnings=[warning])], [evil])._repr_html_()

        assert "<script" not in page
        assert unescape(page).count(evil) == 4
