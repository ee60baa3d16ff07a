"""Predictions as NumPy arrays, and their ways to data frames."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from murho_client._display import fixed_format, html_table, number, pictures, short, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    # These need not be installed, and not all of them are typed.
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from murho_client._data import Labels
    from murho_client._errors import Problem

__all__ = ["Prediction"]


Array: TypeAlias = NDArray[np.float64]

MOMENTS = ("mean", "std", "epistemic_std", "aleatoric_std")
ENTROPIES = ("entropy", "epistemic_entropy")
# Key of an answer → dimensions of its array. Every first dimension is the rows.
REGRESSION = {
    **dict.fromkeys((*MOMENTS, "mc_error.mean", "mc_error.std"), 1),
    **dict.fromkeys(("percentiles", "exceedance", "draws", "mc_error.percentiles"), 2),
}
CLASSIFICATION = {
    **dict.fromkeys(ENTROPIES, 1),
    **dict.fromkeys(("probabilities", "epistemic_std", "mc_error.probabilities"), 2),
    **dict.fromkeys(("percentiles", "draws"), 3),
}
MAX_ROWS, MOST_DRAWN = 10, 100
MAX_CLASSES = 10
"""With more classes a table for people has the probability of the likeliest one alone."""


@dataclass(frozen=True, repr=False, eq=False)
class Prediction:
    """Predictions of B rows, in the order of the rows, in the target's own unit.

    What was not asked for is None; with `samples=0` there is no draw, so all spreads are None. Select rows by indexing:
    `prediction[0]`, `prediction[:10]`, `prediction[prediction.std > 3]`.

    Attributes:
        model: Name of the model.
        version: The version that answered.
        target: Name of the predicted column.
        samples: Draws behind the answer, S.
        seed: Seed of the draws.
        calibrated: Whether std and its parts, percentiles and exceedance are calibrated on held-out rows, or all raw.
        levels: The percentile levels, K.
        thresholds: The thresholds of `exceedance`, T.
        classes: The classes of a classifier, C; None for a regression.
        coverage: Coverage of the prediction sets of a classifier.
        labels: The rows' labels, such as the index of a pandas data frame; None where these are the row numbers.
        calibration: Where bands follow outcomes, ``{"adapted": True, "outcomes": 1250, "state": "87"}``; else None.
        warnings: Values unlike the training rows, each with its row, feature and message.
        request_ids: The ids of the requests behind the answer, as the service's log has them.

    A recorded prediction has `ids` of its rows.
    """

    model: str
    version: str
    target: str
    samples: int
    seed: int
    calibrated: bool
    levels: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()
    classes: tuple[str, ...] | None = None
    coverage: float | None = None
    labels: Labels = None
    calibration: Mapping[str, Any] | None = None
    warnings: tuple[Problem, ...] = ()
    request_ids: tuple[str | None, ...] = ()
    _rows: int = 0
    _arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """What has one entry a row, by key."""

    @classmethod
    def of(
        cls,
        answers: Sequence[Mapping[str, Any]],
        labels: Labels = None,
        request_ids: Sequence[str | None] = (),
    ) -> Prediction:
        """Join the service's answers for consecutive rows.

        Args:
            answers: The answers of `read_answer`, at least one.
            labels: The rows' labels `[B]`; None for row numbers.
            request_ids: The ids of the requests.

        Raises:
            KeyError: An answer lacks a key.
            TypeError: A value has another form.
            ValueError: An array has another shape, or the answers don't fit together.
        """
        facts = [_facts(answer) for answer in answers]
        for other in facts[1:]:
            for key, value in facts[0].items():
                if other[key] != value:
                    raise ValueError(f"the answers differ in {key}: {value!r} and {other[key]!r}")
        parts = [_arrays(answer) for answer in answers]
        counts = [len(answer["mean" if facts[0]["classes"] is None else "prediction"]) for answer in answers]
        arrays: dict[str, NDArray[Any]] = {}
        for key in parts[0]:
            for part, count in zip(parts, counts, strict=True):
                if len(part[key]) != count:
                    raise ValueError(f"{key!r} isn't made of {count} rows")
            arrays[key] = parts[0][key] if len(parts) == 1 else np.concatenate([part[key] for part in parts])
        if "ids" in answers[0]:
            arrays["ids"] = np.array([key for answer in answers for key in answer["ids"]], dtype=object)
        if labels is not None and len(labels) != sum(counts):
            raise ValueError(f"{sum(counts)} rows were answered, but {len(labels)} have labels")
        return cls(
            **facts[0],
            labels=labels,
            calibration=answers[-1].get("calibration"),
            warnings=tuple(dict.fromkeys(warning for answer in answers for warning in answer.get("warnings", ()))),
            request_ids=tuple(request_ids),
            _rows=sum(counts),
            _arrays=arrays,
        )

    @property
    def ids(self) -> tuple[str | None, ...] | None:
        """Ids of the rows, for `Client.outcomes`; None for one that could not be recorded; None if none was to be."""
        found = self._arrays.get("ids")
        return None if found is None else tuple(found)

    @property
    def extrapolation(self) -> NDArray[np.bool_]:
        """Whether each row is unlike the training rows, so that no held-out row speaks for its calibration `[B]`."""
        return self._arrays["extrapolation"]

    @property
    def mean(self) -> Array:
        """Predicted mean `[B]`. A classifier has none."""
        if self.classes is not None:
            raise AttributeError("A classifier's answer has no mean; see prediction and probabilities.")
        return self._arrays["mean"]

    @property
    def std(self) -> Array | None:
        """Predictive standard deviation `[B]`: `std² = epistemic_std² + aleatoric_std²`. None for a classifier."""
        return self._arrays.get("std")

    @property
    def epistemic_std(self) -> Array | None:
        """Spread over draws `[B]`; of a classifier's probabilities `[B, C]`."""
        return self._arrays.get("epistemic_std")

    @property
    def aleatoric_std(self) -> Array | None:
        """Spread of the observation noise `[B]`. None for a classifier."""
        return self._arrays.get("aleatoric_std")

    @property
    def percentiles(self) -> Array | None:
        """Percentiles at `levels`, `[B, K]`; of a classifier's probabilities `[B, C, K]`."""
        return self._arrays.get("percentiles")

    @property
    def draws(self) -> Array | None:
        """Function value of every draw `[B, S]`; a classifier's probabilities `[B, S, C]`."""
        return self._arrays.get("draws")

    @property
    def mc_error(self) -> dict[str, Array] | None:
        """Monte Carlo standard errors for S draws: `mean` and `std` `[B]`, `percentiles` `[B, K]`.

        Of a classifier, `probabilities` `[B, C]`.
        """
        prefix = "mc_error."
        found = {name.removeprefix(prefix): array for name, array in self._arrays.items() if name.startswith(prefix)}
        return found or None

    @property
    def prediction(self) -> NDArray[np.str_] | None:
        """The likeliest class `[B]` of a classifier."""
        return self._arrays.get("prediction")

    @property
    def probabilities(self) -> Array | None:
        """Probabilities of a classifier's classes `[B, C]`, in the order of `classes`. They sum to 1."""
        return self._arrays.get("probabilities")

    @property
    def entropy(self) -> Array | None:
        """Entropy of the probabilities `[B]`, in nats."""
        return self._arrays.get("entropy")

    @property
    def epistemic_entropy(self) -> Array | None:
        """Mutual information of class and weights `[B]`, in nats."""
        return self._arrays.get("epistemic_entropy")

    @property
    def prediction_set(self) -> tuple[tuple[str, ...], ...] | None:
        """The classes of each row's conformal prediction set, which has the true class with probability `coverage`."""
        sets = self._arrays.get("prediction_set")
        return None if sets is None else tuple(sets)

    def probability(self, name: str) -> Array:
        """Return the probability of one class `[B]`.

        Raises:
            ValueError: There is no such class, or the target is a number.
        """
        if self.classes is None:
            raise ValueError(f"{self.target!r} is a number, which has no classes. See exceedance(threshold).")
        if name not in self.classes:
            raise ValueError(f"There is no class {name!r}; there are {self.classes[:MAX_CLASSES]}.")
        column: Array = self._arrays["probabilities"][:, self.classes.index(name)]
        return column

    def percentile(self, level: float) -> Array:
        """Return the percentile at one level `[B]`; of a classifier's probabilities `[B, C]`.

        Raises:
            ValueError: The level was not asked for.
        """
        return self._at("percentiles", [level], f"percentile({level:g})")[0]

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the central interval that has the target with probability `coverage`: lower and upper bounds `[B]`.

        Of a classifier it is the interval of each class's probability over draws, `[B, C]`.

        Raises:
            ValueError: `coverage` isn't between 0 and 1, or its two percentiles were not asked for.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage lies strictly between 0 and 1, not {coverage:g}; 0.9 is 90 %.")
        tail = 50 * (1 - coverage)
        lower, upper = self._at("percentiles", [tail, 100 - tail], f"interval({coverage:g})")
        return lower, upper

    def exceedance(self, threshold: float) -> Array:
        """Return the probability that the target exceeds a threshold `[B]`.

        Raises:
            ValueError: The threshold was not asked for.
        """
        return self._at("thresholds", [threshold], f"exceedance({number(threshold)})")[0]

    def _at(self, option: str, wanted: Sequence[float], caller: str) -> list[Array]:
        """Return the percentiles at some levels, or the probabilities of exceeding some thresholds."""
        if self.samples == 0:
            raise ValueError("With samples=0 there is no spread. Ask for draws, such as samples=256.")
        asked, key = (self.levels, "percentiles") if option == "percentiles" else (self.thresholds, "exceedance")
        found = [
            index
            for value in wanted
            for index, one in enumerate(asked)
            if math.isclose(one, value, rel_tol=1e-12, abs_tol=1e-9)
        ]
        if len(found) < len(wanted):
            needs, have = ", ".join(map(number, wanted)), ", ".join(map(number, asked)) or "none"
            raise ValueError(
                f"{caller} needs the {option} {needs}, but the prediction has {have}. "
                f"Ask for them: predict(…, {option}=({needs}{',' if len(wanted) == 1 else ''}))."
            )
        return [self._arrays[key][..., index] for index in found]

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> Prediction:
        """Return the prediction of some rows: an index, a slice, a list of indices or a mask `[B]`."""
        chosen = np.atleast_1d(np.arange(self._rows)[np.asarray(key) if hasattr(key, "__array__") else key])
        if chosen.ndim != 1:
            raise IndexError("A prediction is indexed by its rows alone.")
        warnings = [warning for warning in self.warnings if warning.row is None]
        if self.warnings:
            by_row: dict[int | None, list[Problem]] = {}
            for warning in self.warnings:
                by_row.setdefault(warning.row, []).append(warning)
            for new, old in enumerate(chosen.tolist()):
                warnings += [replace(warning, row=new) for warning in by_row.get(old, ())]
        labels = chosen if self.labels is None else self.labels[chosen]
        arrays = {name: array[chosen] for name, array in self._arrays.items()}
        return replace(self, labels=labels, warnings=tuple(warnings), _rows=len(chosen), _arrays=arrays)

    def __iter__(self) -> Iterator[Prediction]:
        """One prediction a row."""
        return map(self.__getitem__, range(self._rows))

    def columns(self) -> dict[str, Any]:
        """Return the prediction as columns `[B]` by name, as `murho predict` writes them.

        A regression has `mean, std, epistemic_std, aleatoric_std, p5, p50, …`, then `exceedance_T` for each threshold;
        a classifier `prediction, p_CLASS, …, entropy, epistemic_entropy, prediction_set`. What is None has no column.
        Recorded rows have `id` first.
        """
        arrays = self._arrays
        columns: dict[str, Any] = {} if self.ids is None else {"id": list(self.ids)}
        if self.classes is None:
            columns |= {name: arrays[name] for name in MOMENTS if name in arrays}
            for key, prefix, listed in (
                ("percentiles", "p", self.levels),
                ("exceedance", "exceedance_", self.thresholds),
            ):
                columns |= {f"{prefix}{number(at)}": arrays[key][:, index] for index, at in enumerate(listed)}
            return columns
        columns["prediction"] = arrays["prediction"].tolist()
        columns |= {f"p_{name}": arrays["probabilities"][:, index] for index, name in enumerate(self.classes)}
        columns |= {name: arrays[name] for name in ENTROPIES if name in arrays}
        if "prediction_set" in arrays:
            columns["prediction_set"] = list(map(list, arrays["prediction_set"]))
        return columns

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas data frame with `columns()`. Its index is that of the data frame that was predicted.

        Raises:
            ImportError: pandas isn't installed.
        """
        return _package("pandas").DataFrame(self.columns(), index=self.labels)

    def to_polars(self) -> polars.DataFrame:
        """Return a polars data frame with `columns()`.

        Raises:
            ImportError: polars isn't installed.
        """
        frame: polars.DataFrame = _package("polars").DataFrame(self.columns())
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """Return an Arrow table with `columns()`.

        Raises:
            ImportError: pyarrow isn't installed.
        """
        return _package("pyarrow").table(self.columns())

    def plot(self) -> Any:
        """Return the first hundred rows as a chart of altair: means with their outermost percentiles, or probabilities.

        Raises:
            ImportError: altair isn't installed.
        """
        altair, shown = _package("altair"), self[:MOST_DRAWN].columns()
        kept = {name: np.asarray(column).tolist() for name, column in shown.items() if name != "prediction_set"}
        rows = enumerate(zip(*kept.values(), strict=True))
        records = [{"row": number} | dict(zip(kept, cells, strict=True)) for number, cells in rows]
        chart = altair.Chart(altair.Data(values=records), title=self.target).encode(x="row:O")
        if self.classes is not None:
            bars = chart.transform_fold([f"p_{name}" for name in self.classes], as_=["class", "probability"]).mark_bar()
            return bars.encode(y="probability:Q", color="class:N")
        points = chart.mark_point(filled=True).encode(y="mean:Q")
        ends = [f"p{number(level)}" for level in sorted(self.levels)] if self.samples else []
        return chart.mark_rule().encode(y=f"{ends[0]}:Q", y2=f"{ends[-1]}:Q") + points if ends else points

    def __repr__(self) -> str:
        return text_table(*self._table(), self.warnings)

    def _repr_html_(self) -> str:
        """Return the table for notebooks, with an error bar a row.

        The bar spans the outermost percentiles, or twice the std on both sides without percentiles. Its thick part is
        the mean ± the epistemic std, where that lies within the bar. The dot is the mean. All bars share one scale.
        Those of a classifier show the probability of the likeliest class.
        """
        return html_table(*self._table(), self.warnings, self._bars())

    def _ends(self) -> tuple[Prediction, Callable[[list[str], str], list[str]]]:
        """Return the first and last rows, and what puts a text between both, where rows are left out."""
        if self._rows <= MAX_ROWS:
            return self, lambda column, _: column
        half = MAX_ROWS // 2
        return self[[*range(half), *range(-half, 0)]], lambda column, text: [*column[:half], text, *column[half:]]

    def _table(self) -> tuple[str, dict[str, list[str]]]:
        """Return the title, and the first and last rows by column, with as many digits as their spreads allow."""
        count, (shown, cut) = self._rows, self._ends()
        columns = shown.columns()
        in_unit: Callable[[float], str]
        in_unit = share = "{:.3f}".format
        if self.classes is None:
            in_unit = fixed_format(shown.mean, np.abs(shown.mean) / 100 if shown.std is None else shown.std)
        elif len(self.classes) > MAX_CLASSES:
            likeliest = {"prediction": columns["prediction"], "probability": shown._arrays["probabilities"].max(axis=1)}
            after = {name: columns[name] for name in (*ENTROPIES, "prediction_set") if name in columns}
            columns = likeliest | after
        labels = range(count) if shown.labels is None else shown.labels
        cells = {"": cut([short(str(label)) for label in labels], "…")}
        for name, column in columns.items():
            write = share if name.startswith("exceedance_") else in_unit
            cells[short(name)] = cut([short(_cell(value, write)) for value in column], "…")
        how = ["mean weights only" if self.samples == 0 else f"{self.samples} samples, seed {self.seed}"]
        if self.samples:
            how.append("calibrated" if self.calibrated else "not calibrated")
        if far := np.count_nonzero(self.extrapolation):
            how.append(f"{far:,} {'row extrapolates' if far == 1 else 'rows extrapolate'}")
        size = "1 row" if count == 1 else f"{count:,} rows"
        return f"{self.target}: {size}, {self.model} version {self.version}, {', '.join(how)}", cells

    def _bars(self) -> dict[str, list[str]]:
        """Return the column of error bars; of a classifier, of the likeliest class. None: there is no spread."""
        shown, cut = self._ends()
        inner, percentiles, centre = shown.epistemic_std, shown.percentiles, shown._arrays.get("mean")
        if centre is None:
            chosen = np.arange(len(shown)), shown._arrays["probabilities"].argmax(axis=1)
            centre, inner, percentiles = (
                None if each is None else each[chosen] for each in (shown.probabilities, inner, percentiles)
            )
        spread = inner if self.classes else shown.std
        if not len(shown) or centre is None or spread is None or inner is None:
            return {}
        caption = "mean ± 2 std"
        lower, upper = centre - 2 * spread, centre + 2 * spread
        if percentiles is not None and len(self.levels) > 1:
            lower, upper = percentiles.min(axis=1), percentiles.max(axis=1)
            caption = f"p{number(min(self.levels))} to p{number(max(self.levels))}"
        about, scale = "probability of the prediction, 0 to 1: ", (0.0, 1.0)
        if not self.classes:
            about, scale = "", (float(min(lower.min(), centre.min())), float(max(upper.max(), centre.max())))
        drawn = pictures(lower, upper, centre, inner, scale)
        return {f"{about}{caption} (thick: epistemic)": cut(drawn, "")} if drawn else {}


def _facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an answer says of all rows."""
    model, classes = answer["model"], answer.get("classes")
    levels, thresholds, coverage = (
        (answer.get(key) or {}).get(part)
        for key, part in (("percentiles", "levels"), ("exceedance", "thresholds"), ("prediction_set", "coverage"))
    )
    return {
        "model": model["name"],
        "version": model["version"],
        **{key: answer[key] for key in ("target", "samples", "seed", "calibrated")},
        "levels": tuple(levels or ()),
        "thresholds": tuple(thresholds or ()),
        "classes": None if classes is None else tuple(classes),
        "coverage": coverage,
    }


def _arrays(answer: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return what an answer has one entry a row of, by key.

    Raises:
        ValueError: An array has another number of dimensions, or a number isn't finite.
    """
    of_classes = answer.get("classes") is not None
    found = dict(answer)
    for key in ("percentiles", "exceedance", "prediction_set"):
        found[key] = (answer.get(key) or {}).get("values")
    found |= {f"mc_error.{name}": value for name, value in (answer.get("mc_error") or {}).items()}
    arrays: dict[str, NDArray[Any]] = {}
    for name, dimensions in (CLASSIFICATION if of_classes else REGRESSION).items():
        if found.get(name) is None:
            continue
        array = np.asarray(found[name], dtype=np.float64)
        if not array.size and 1 < array.ndim < dimensions:  # no entries, such as the draws with `samples=0`
            array = array.reshape(*array.shape, *[0] * (dimensions - array.ndim))
        if array.ndim != dimensions or not np.isfinite(array).all():
            raise ValueError(f"{name!r} isn't made of rows of finite numbers")
        arrays[name] = array
    arrays["extrapolation"] = np.array(answer["extrapolation"], dtype=np.bool_)
    if of_classes:
        arrays["prediction"] = np.array(answer["prediction"], dtype=str)
    if sets := found["prediction_set"]:
        members = list(map(tuple, sets))
        arrays["prediction_set"] = np.fromiter(members, dtype=object, count=len(members))
    return arrays


def _cell(value: Any, write: Any) -> str:
    if isinstance(value, str | list):
        return value if isinstance(value, str) else ", ".join(value)
    return str(write(value))


def _package(name: str) -> Any:
    """Return a package that a method needs.

    Raises:
        ImportError: It isn't installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(f"to_{name.removeprefix('py')}() needs {name}. Install it: pip install {name}") from error
