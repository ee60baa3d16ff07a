"""Predictions as NumPy arrays, and their ways to data frames."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from murho_client._columns import columns_of, package
from murho_client._data import Labels
from murho_client._html import html_table
from murho_client._joining import arrays_of, common, same
from murho_client._text_table import number, text_table
from murho_client._warnings import PredictionWarning, read_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    # These need not be installed, and not all of them are typed.
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]

__all__ = ["Prediction", "PredictionWarning"]

Array: TypeAlias = NDArray[np.float64]

MAX_CLASSES = 20


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
        warnings: Values unlike the training rows.
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
    labels: Sequence[Any] | None = None
    warnings: tuple[PredictionWarning, ...] = ()
    _rows: int = 0
    _arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """What has one entry a row, by key."""

    @classmethod
    def of(cls, answers: Sequence[Mapping[str, Any]], labels: Sequence[Any] | None = None) -> Prediction:
        """Joins the service's answers for consecutive rows.

        Args:
            answers: The JSON answers, at least one.
            labels: The rows' labels `[B]`; None for row numbers.

        Raises:
            KeyError: An answer lacks a key.
            TypeError: A value has another form.
            ValueError: An array has another shape, or the answers don't fit together.
        """
        first = answers[0]
        classes = first.get("classes")
        counts = [len(answer["mean" if classes is None else "prediction"]) for answer in answers]
        rows = sum(counts)
        if labels is not None and len(labels) != rows:
            raise ValueError(f"{rows} rows were answered, but {len(labels)} have labels")
        percentiles = common(answers, "percentiles", "levels")
        exceedance = common(answers, "exceedance", "thresholds")
        coverage = common(answers, "prediction_set", "coverage")
        for key in ("model", "target", "samples", "seed", "calibrated", "classes"):
            same([answer.get(key) for answer in answers], key)

        return cls(
            model=first["model"]["name"],
            version=first["model"]["version"],
            target=first["target"],
            samples=first["samples"],
            seed=first["seed"],
            calibrated=first["calibrated"],
            levels=tuple(percentiles or ()),
            thresholds=tuple(exceedance or ()),
            classes=None if classes is None else tuple(classes),
            coverage=coverage,
            labels=labels,
            warnings=read_warnings(answers, counts, labels),
            _rows=rows,
            _arrays=arrays_of(answers, counts, rows),
        )

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

    def probability(self, name: str) -> Array:
        """The probability of one class `[B]`.

        Raises:
            ValueError: There is no such class, or the target is a number.
        """
        if self.classes is None:
            raise ValueError(f"{self.target!r} is a number, which has no classes. See exceedance(threshold).")
        if name not in self.classes:
            some = ", ".join(map(repr, self.classes[:MAX_CLASSES]))
            more = ", …" if len(self.classes) > MAX_CLASSES else ""
            raise ValueError(f"There is no class {name!r}; there are {some}{more}.")
        column: Array = self._arrays["probabilities"][:, self.classes.index(name)]
        return column

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

    def percentile(self, level: float) -> Array:
        """The percentile at one level `[B]`; of a classifier's probabilities `[B, C]`.

        Raises:
            ValueError: The level was not asked for.
        """
        return self._percentiles(f"percentile({level:g})", [level])[0]

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """The central interval that has the target with probability `coverage`: lower and upper bounds `[B]`.

        Of a classifier it is the interval of each class's probability over draws, `[B, C]`.

        Raises:
            ValueError: `coverage` isn't between 0 and 1, or its two percentiles were not asked for.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage lies strictly between 0 and 1, not {coverage:g}; 0.9 is 90 %.")
        tail = 50 * (1 - coverage)
        lower, upper = self._percentiles(f"interval({coverage:g})", [tail, 100 - tail])
        return lower, upper

    def _percentiles(self, wanted_by: str, wanted: Sequence[float]) -> list[Array]:
        if self.percentiles is None and self.samples == 0:
            raise ValueError("With samples=0 there is no spread. Ask for draws, such as samples=256.")
        found = [
            index
            for level in wanted
            for index, asked in enumerate(self.levels)
            if math.isclose(asked, level, rel_tol=0, abs_tol=1e-9)
        ]
        if self.percentiles is None or len(found) < len(wanted):
            needs = ", ".join(map(number, wanted))
            have = ", ".join(map(number, self.levels)) or "none"
            raise ValueError(
                f"{wanted_by} needs the percentiles {needs}, but the prediction has {have}. "
                f"Ask for them: predict(…, percentiles=({needs}{',' if len(wanted) == 1 else ''}))."
            )
        return [self.percentiles[..., index] for index in found]

    def exceedance(self, threshold: float) -> Array:
        """The probability that the target exceeds a threshold `[B]`.

        Raises:
            ValueError: The threshold was not asked for.
        """
        values = self._arrays.get("exceedance")
        for index, asked in enumerate(self.thresholds):
            if values is not None and asked == threshold:
                return values[:, index]
        have = ", ".join(map(number, self.thresholds)) or "none"
        raise ValueError(
            f"exceedance({number(threshold)}) was not asked for; the thresholds are {have}. "
            f"Ask for it: predict(…, thresholds=({number(threshold)},))."
        )

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> Prediction:
        """The prediction of some rows: an index, a slice, a list of indices or a mask `[B]`."""
        chosen = np.atleast_1d(np.arange(self._rows)[np.asarray(key) if hasattr(key, "__array__") else key])
        if chosen.ndim != 1:
            raise IndexError("A prediction is indexed by its rows alone.")
        warnings = self.warnings
        if warnings:
            by_row: dict[int | None, list[PredictionWarning]] = {}
            for warning in warnings:
                by_row.setdefault(warning.row, []).append(warning)
            warnings = tuple(by_row.get(None, [])) + tuple(
                replace(warning, row=new) for new, old in enumerate(chosen.tolist()) for warning in by_row.get(old, [])
            )
        labels: Sequence[Any]
        if self.labels is None:
            labels = chosen.tolist()
        elif isinstance(self.labels, Labels):
            labels = Labels(self.labels.pandas_index[chosen])
        else:
            labels = [self.labels[row] for row in chosen.tolist()]
        arrays = {name: array[chosen] for name, array in self._arrays.items()}
        return replace(self, labels=labels, warnings=warnings, _rows=len(chosen), _arrays=arrays)

    def __iter__(self) -> Iterator[Prediction]:
        """One prediction a row."""
        return (self[row] for row in range(self._rows))

    def columns(self) -> dict[str, Any]:
        """The prediction as columns `[B]` by name, as `murho predict` writes them.

        A regression has `mean, std, epistemic_std, aleatoric_std, p5, p50, …`, then `exceedance_T` for each threshold;
        a classifier `prediction, p_CLASS, …, entropy, epistemic_entropy, prediction_set`. What is None has no column.
        """
        return columns_of(self, self._arrays)

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas data frame with `columns()`. Its index is that of the data frame that was predicted.

        Raises:
            ImportError: pandas isn't installed.
        """
        index = self.labels.pandas_index if isinstance(self.labels, Labels) else self.labels
        return package("pandas", "to_pandas").DataFrame(self.columns(), index=index)

    def to_polars(self) -> polars.DataFrame:
        """A polars data frame with `columns()`.

        Raises:
            ImportError: polars isn't installed.
        """
        frame: polars.DataFrame = package("polars", "to_polars").DataFrame(self.columns())
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """An Arrow table with `columns()`.

        Raises:
            ImportError: pyarrow isn't installed.
        """
        return package("pyarrow", "to_arrow").table(self.columns())

    def __repr__(self) -> str:
        return text_table(self)

    def _repr_html_(self) -> str:
        return html_table(self)
