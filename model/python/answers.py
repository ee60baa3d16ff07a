"""Answers to Python callers: the predictive distributions of numbers and of classes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from html import escape
from importlib import import_module
from typing import Any, Generic, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from murho.model.arrays import Array, Bools, Doubles, Places
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError, TableError, list_names
from murho.model.predictive.prediction import ClassPrediction, Prediction, PredictionT, PredictOptions, Question
from murho.model.tables.schema import UnfamiliarValue, count_rows, select_rows
from murho.model.tables.schema_inference import columns_from_table

OPTION = re.compile(r"--([a-z][a-z0-9-]*)")


class DataError(TableError, ValueError):
    """The data can't be used; a ValueError, as Python callers expect."""


class ParameterError(OptionError, ValueError):
    """A parameter has a value that can't be used; a ValueError, as Python callers expect."""


@contextmanager
def as_value_errors(renamed: Mapping[str, str] | None = None) -> Iterator[None]:
    """Convert a `TableError` to a `DataError`, and an `OptionError` to a `ParameterError`.

    Option names in the latter's message become parameter names: ``--batch-size`` becomes ``batch_size``.

    Args:
        renamed: Options whose parameter has another name.
    """

    def parameter(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return (renamed or {}).get(name, name)

    try:
        yield
    except (DataError, ParameterError):
        raise
    except TableError as error:
        raise DataError(str(error), row=error.row) from error
    except OptionError as error:
        raise ParameterError(OPTION.sub(parameter, str(error))) from error


VALUES_AT_ONCE = 64
"""Values that a pass asks of all its rows, although each row needs only some of them. A pass takes about as long as
that many values of a few rows."""
SHOWN, MOST_SHOWN, MOST_DRAWN = 5, 10, 100
"""Rows in a ``repr``, in a notebook's table, and in a chart."""


def _format_cell(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float | np.floating) else str(cell)


class Distribution(Generic[PredictionT]):
    """The predictive distribution of the target for each of B rows; nothing is computed before it is asked for."""

    def __init__(self, posterior: Posterior[PredictionT], table: pa.Table, options: PredictOptions) -> None:
        """Read the rows of a table.

        Args:
            posterior: The posterior that is asked.
            table: Its features.
            options: Options that all answers share.

        Raises:
            TableError: A feature is missing, or a cell does not fit; the message names column and row (from 1).
        """
        self._posterior, self._options = posterior, replace(options, percentiles=())
        self._columns = columns_from_table(table, posterior.schema)

    def __len__(self) -> int:
        """B."""
        return count_rows(self._columns)

    def __getitem__(self, rows: Any) -> Self:
        """Return the distributions of some rows, by a number, a slice, a mask or numbers."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        part = copy(self)
        part._columns = {name: column[chosen] for name, column in self._columns.items()}
        part.__dict__.pop("_plain", None)
        return part

    def __repr__(self) -> str:
        target, shown = self._posterior.schema.target, ", ".join(self[:SHOWN]._format_rows())
        unit = f" {target.unit}" if target.unit else ""
        return f"<{target.name} of {len(self)} rows: {shown}{', …' if len(self) > SHOWN else ''}{unit}>"

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        shown = self[:MOST_SHOWN].columns()
        head = "".join(f"<th>{escape(name)}</th>" for name in shown)
        rows = zip(*shown.values(), strict=True)
        cells = ("".join(f"<td>{escape(_format_cell(cell))}</td>" for cell in row) for row in rows)
        more = f"<p>{MOST_SHOWN} of {len(self)} rows</p>" if len(self) > MOST_SHOWN else ""
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>{more}"

    def columns(self) -> dict[str, Any]:
        """Return the answers as columns ``[B]`` by name, as ``murho predict`` writes them."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the answers as a data frame of pandas, which must be installed."""
        return import_module("pandas").DataFrame(self.columns())

    def plot(self) -> Any:
        """Return the first hundred rows as a chart of altair, which must be installed: notebooks show it."""
        altair = import_module("altair")
        shown = self[:MOST_DRAWN].columns()
        rows = enumerate(zip(*(np.asarray(column).tolist() for column in shown.values()), strict=True))
        records = [{"row": number} | dict(zip(shown, cells, strict=True)) for number, cells in rows]
        return self._drawing(altair.Chart(altair.Data(values=records)).encode(x="row:O"))

    def _drawing(self, chart: Any) -> Any:
        raise NotImplementedError

    def _format_rows(self) -> list[str]:
        """Return the rows in few words."""
        raise NotImplementedError

    def answer(self, **changes: Any) -> PredictionT:
        """Return the posterior's answer, a `model.predictive.prediction.Prediction` or one of classes.

        Args:
            changes: Other options, by name.
        """
        return self._posterior.predict(self._columns, replace(self._options, **changes))

    @cached_property
    def _plain(self) -> PredictionT:
        """The answer without percentiles: moments, or probabilities."""
        return self.answer()

    @property
    def calibrated(self) -> bool:
        """Whether everything is calibrated, but for the mean of a number, or all is raw."""
        return self._plain.calibrated

    @property
    def warnings(self) -> tuple[UnfamiliarValue, ...]:
        """What is unlike the training rows: ``row`` (from 0), ``feature`` and ``message`` of each, sorted by row."""
        has_warnings = self._plain.has_warnings
        if has_warnings is None or not has_warnings.any():
            return ()
        rows = np.flatnonzero(has_warnings)
        question = Question(slice(0, len(rows)), PredictOptions(samples=0), max_warnings=sys.maxsize)
        ((_, found),) = self._posterior.predict_questions(select_rows(self._columns, rows), [question])
        return tuple(replace(value, row=int(rows[value.row])) for value in found)

    @property
    def extrapolation(self) -> Bools:
        """Whether each row is unlike the training rows, so that no held-out row speaks for its calibration, ``[B]``."""
        return self._plain.extrapolation

    def _draw_rows(self, name: str, **changes: Any) -> Array:
        """Return a field of the answer that takes draws.

        Args:
            name: Name of the field.
            changes: Changed options.

        Raises:
            ParameterError: ``samples`` is 0.
        """
        if self._options.samples == 0:
            raise ParameterError(f"samples: a whole number, at least 1 for {name}; it is 0, the mean alone")
        values: Array = getattr(self.answer(**changes) if changes else self._plain, name)
        return values


def probability_levels(values: ArrayLike, name: str) -> Doubles:
    """Levels as numbers, after a check that each lies strictly between 0 and 1.

    Raises:
        ParameterError: One does not.
    """
    levels = np.asarray(values, dtype=np.float64)
    if not ((levels > 0.0) & (levels < 1.0)).all():
        hint = ", not per cent: 0.95, not 95" if (levels > 1.0).any() else ""
        raise ParameterError(f"{name}: levels strictly between 0 and 1{hint}")
    return levels


def require_whole(value: object, name: str, least: int) -> int:
    """Return a whole number, after a check.

    Raises:
        ParameterError: It is none, below the least, or beyond 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**63:
        raise ParameterError(f"{name}: a whole number, at least {least} and below 2^63, not {value!r}")
    return int(value)


class NumberDistribution(Distribution[Prediction]):
    """The predictive distribution of the target for each of B rows, in the target's unit.

    It is the exact mixture over the draws of the posterior. If the model has a calibration, `interval`, `ppf`, `cdf`,
    `sf` and `sample` are of the calibrated distribution. The mean is that of the mixture, and `std` and its two parts
    count the outer 1 % of the calibrated distribution in the proportion of the raw one
    (`model.calibration.conformal`), so that of many samples may differ by some per cent.

    Arguments follow NumPy's rules of broadcasting, as in SciPy: a number is for every row, ``[B]`` numbers are one a
    row, and ``[K, 1]`` numbers are K for every row, with the result ``[K, B]``.
    """

    def _format_rows(self) -> list[str]:
        answer = self._plain
        spreads = [""] * len(self) if answer.std is None else [f" ± {std:.3g}" for std in answer.std]
        return [f"{mean:.4g}{spread}" for mean, spread in zip(answer.mean, spreads, strict=True)]

    @property
    def mean(self) -> Doubles:
        """``[B]``."""
        return self._plain.mean

    def columns(self) -> dict[str, Any]:
        """``mean``, and with draws ``std``, its two parts, ``p5``, ``p50`` and ``p95``, ``[B]``."""
        if self._options.samples == 0:
            return {"mean": self.mean}
        names = ("mean", "std", "epistemic_std", "aleatoric_std")
        levels = self.ppf([[0.05], [0.5], [0.95]])
        return {name: getattr(self, name) for name in names} | dict(zip(("p5", "p50", "p95"), levels, strict=True))

    def _drawing(self, chart: Any) -> Any:
        """Means with the 90 % band."""
        target = self._posterior.schema.target
        title = f"{target.name} ({target.unit})" if target.unit else target.name
        band = chart.mark_rule().encode(y="p5:Q", y2="p95:Q")
        return (
            (band + chart.mark_point(filled=True).encode(y="mean:Q")).resolve_scale(y="shared").properties(title=title)
        )

    def median(self) -> Doubles:
        """``[B]``."""
        return self.ppf(0.5)

    @property
    def std(self) -> Doubles:
        """Standard deviation ``[B]``: the root of ``epistemic_std**2 + aleatoric_std**2``."""
        return self._draw_rows("std")

    def var(self) -> Doubles:
        """Variance ``[B]``."""
        return self.std**2

    @property
    def epistemic_std(self) -> Doubles:
        """Standard deviation of the doubt about the function, which more training rows reduce, ``[B]``."""
        return self._draw_rows("epistemic_std")

    @property
    def aleatoric_std(self) -> Doubles:
        """Standard deviation of the observation noise, which no training row reduces, ``[B]``."""
        return self._draw_rows("aleatoric_std")

    def ppf(self, q: ArrayLike) -> Doubles:
        """Quantiles, the inverse of `cdf`.

        Args:
            q: Levels, strictly between 0 and 1, broadcastable to ``[..., B]``.

        Returns:
            ``[..., B]``.

        Raises:
            ParameterError: A level lies elsewhere, the shape does not fit, or there are no draws.
        """
        return self._at_values(100.0 * probability_levels(self._for_every_row(q, "q"), "q"), "percentiles")

    def interval(self, coverage: ArrayLike = 0.9) -> tuple[Doubles, Doubles]:
        """Lower and upper end of the central interval that holds the target with a probability.

        Args:
            coverage: The probability, strictly between 0 and 1, broadcastable to ``[..., B]``.

        Returns:
            Both ends, ``[..., B]`` each.

        Raises:
            ParameterError: As for `ppf`.
        """
        share = probability_levels(self._for_every_row(coverage, "coverage"), "coverage")
        lower, upper = self.ppf(np.stack((0.5 * (1.0 - share), 0.5 * (1.0 + share))))
        return lower, upper

    def sf(self, x: ArrayLike) -> Doubles:
        """Probability that the target exceeds a value.

        Args:
            x: Values in the target's unit, broadcastable to ``[..., B]``.

        Returns:
            ``[..., B]``; NaN at NaN.

        Raises:
            ParameterError: The shape does not fit, or there are no draws.
        """
        values = self._for_every_row(x, "x")
        finite = np.isfinite(values)
        result = self._at_values(np.where(finite, values, 0.0), "exceedance")
        ends = np.where(np.isnan(values), np.nan, (values < 0.0).astype(np.float64))
        return np.where(finite, result, ends)

    def cdf(self, x: ArrayLike) -> Doubles:
        """Probability that the target is at most a value: one minus `sf`."""
        return 1.0 - self.sf(x)

    def sample(self, n: int = 1, *, seed: int | np.random.Generator | None = None) -> Doubles:
        """Observations drawn from the distribution of each row, independent between rows.

        The n observations of a row are stratified: one in each n-th of its probability, in random order (Latin
        hypercube sampling; McKay, Beckman & Conover 1979, doi:10.2307/1268522). Each has the row's distribution, and
        their mean is more exact than that of independent ones.

        Args:
            n: Observations of each row.
            seed: A number gives the same observations each time; None: others each time.

        Returns:
            ``[n, B]``.

        Raises:
            ParameterError: n is no whole number from 1, or there are no draws.
        """
        n = require_whole(n, "n", 1)
        generator = np.random.default_rng(seed)
        # 1 - random() lies in (0, 1]; half a rounding error keeps the level below 1, too.
        levels = (np.arange(n) + (1.0 - generator.random(n)) * (1.0 - np.finfo(np.float64).eps)) / n
        orders = generator.permuted(np.tile(np.arange(n), (len(self), 1)), axis=1).T
        return self.ppf(levels[orders])

    def functions(self) -> Doubles:
        """Return function values of the posterior's draws, without observation noise and not calibrated.

        Returns:
            ``[B, S]``. Column k is the same function for all rows and calls, so that differences between rows mean
            something.

        Raises:
            ParameterError: There are no draws.
        """
        return self._draw_rows("draws", noise=False, draws=True)

    def _at_values(self, values: Doubles, name: Literal["percentiles", "exceedance"]) -> Doubles:
        """Percentiles, or probabilities of exceedance, at values of their own for every row.

        Args:
            values: ``[..., B]``.
            name: The field of the answer.

        Returns:
            ``[..., B]``.
        """
        if not values.size:
            return np.empty(values.shape)
        flat = values.reshape(-1, len(self))
        result = np.empty(flat.shape)
        all_at_once = len(np.unique(flat)) <= max(VALUES_AT_ONCE, 2 * len(flat))
        step = len(self) if all_at_once else max(1, VALUES_AT_ONCE // len(flat))
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            distinct, places = np.unique(flat[:, rows], return_inverse=True)
            option = "thresholds" if name == "exceedance" else name
            table = self[rows]._draw_rows(name, **{option: tuple(distinct.tolist())})
            result[:, rows] = table[np.arange(len(table)), places.reshape(len(flat), -1)]
        return result.reshape(values.shape)

    def _for_every_row(self, values: ArrayLike, name: str) -> Doubles:
        """Values as ``[..., B]``, by NumPy's rules of broadcasting.

        Args:
            values: A number, one number for every row ``[B]``, or ``[K, 1]`` for K numbers for every row.
            name: Name of the argument, for messages.

        Raises:
            ParameterError: The shape does not fit the rows.
        """
        try:
            numbers = np.asarray(values, dtype=np.float64)
            return np.broadcast_to(numbers, (*numbers.shape[:-1], len(self)))
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"{name}: a number, or one for each of the {len(self)} rows, not {values!r}; numbers for every row are "
                f"np.reshape({name}, (-1, 1))"
            ) from error


class ClassDistribution(Distribution[ClassPrediction]):
    """The probability of each of C classes, for each of B rows; calibrated if the model has a calibration.

    Attributes:
        classes: The classes, ``[C]``, in the order of all answers.
    """

    def __init__(
        self,
        posterior: Posterior[ClassPrediction],
        table: pa.Table,
        options: PredictOptions,
        classes: Array | None = None,
        places: Places | None = None,
    ) -> None:
        """Read the rows of a table; see `Distribution`.

        Args:
            posterior: The posterior that is asked.
            table: Its features.
            options: Options that all answers share.
            classes: Names for the classes, ``[C]``; by default the model's own, which are sorted texts.
            places: Index of each of these among the model's classes, ``[C]``; None: they have the same order.
        """
        super().__init__(posterior, table, options)
        own = np.array(posterior.schema.target.classes or ())
        self.classes: Array = own if classes is None else classes
        self._places = np.arange(len(own)) if places is None else places

    def _format_rows(self) -> list[str]:
        return [
            f"{name} {share:.0%}" for name, share in zip(self.prediction, self.probabilities.max(axis=1), strict=True)
        ]

    def columns(self) -> dict[str, Any]:
        """``prediction``, ``p_CLASS`` for each class, and with draws ``entropy`` and ``epistemic_entropy``, ``[B]``."""
        found = {"prediction": self.prediction}
        found |= {f"p_{name}": column for name, column in zip(self.classes, self.probabilities.T, strict=True)}
        if self._options.samples:
            found |= {"entropy": self.entropy, "epistemic_entropy": self.epistemic_entropy}
        return found

    def _drawing(self, chart: Any) -> Any:
        """Return the probabilities of the classes, on top of each other."""
        names = [f"p_{name}" for name in self.classes]
        folded = chart.transform_fold(names, as_=["class", "probability"])
        return (
            folded.mark_bar()
            .encode(y="probability:Q", color="class:N")
            .properties(title=self._posterior.schema.target.name)
        )

    @property
    def probabilities(self) -> Doubles:
        """Probabilities of the classes, ``[B, C]``, of sum 1."""
        return self._by_class(self._plain.probabilities)

    def probability(self, label: Any) -> Doubles:
        """Probability of one class, ``[B]``.

        Raises:
            ParameterError: There is no such class.
        """
        known = self.classes.tolist()
        if label not in known:
            raise ParameterError(f"label: {label!r} is none of the {len(known)} classes ({list_names(known)})")
        return self.probabilities[:, known.index(label)]

    @property
    def prediction(self) -> Array:
        """The likeliest class, ``[B]``."""
        likeliest: Array = self.classes[self.probabilities.argmax(axis=1)]
        return likeliest

    @property
    def epistemic_std(self) -> Doubles:
        """Standard deviation of each class's probability over draws, which more training rows reduce, ``[B, C]``."""
        return self._by_class(self._draw_rows("epistemic_std"))

    @property
    def entropy(self) -> Doubles:
        """Entropy of the probabilities in nats, ``[B]``: 0 for a certain class, ``log(C)`` where nothing is known."""
        return self._draw_rows("entropy")

    @property
    def epistemic_entropy(self) -> Doubles:
        """The part of the entropy that more training rows reduce, in nats, ``[B]``.

        It is the mutual information of class and weights (Houlsby et al. 2011, arXiv:1112.5745).
        """
        return self._draw_rows("epistemic_entropy")

    @property
    def aleatoric_entropy(self) -> Doubles:
        """The rest of the entropy, ``[B]``: that which is expected of a draw, in nats."""
        return self.entropy - self.epistemic_entropy

    def interval(self, coverage: float = 0.9) -> tuple[Doubles, Doubles]:
        """Lower and upper end of the central interval of each class's probability over draws.

        Args:
            coverage: Share of the draws between the two, strictly between 0 and 1.

        Returns:
            Both ends, ``[B, C]`` each.

        Raises:
            ParameterError: The share lies elsewhere, or there are no draws.
        """
        share = float(probability_levels(coverage, "coverage"))
        ends = self._draw_rows("percentiles", percentiles=(50.0 * (1.0 - share), 50.0 * (1.0 + share)))
        lower, upper = (self._by_class(ends[:, :, side]) for side in (0, 1))
        return lower, upper

    def prediction_set(self, coverage: float = 0.9) -> Bools:
        """Whether each class is in the set that holds the class with a probability, ``[B, C]``, bool; never empty.

        Args:
            coverage: The probability, strictly between 0 and 1.

        Raises:
            ParameterError: The coverage lies elsewhere, or there are no draws.
        """
        share = float(probability_levels(coverage, "coverage"))
        return self._draw_rows("prediction_set", coverage=share)[:, self._places]

    def sample(self, n: int = 1, *, seed: int | np.random.Generator | None = None) -> Array:
        """Classes drawn with their probabilities, independently.

        Args:
            n: Classes for each row.
            seed: A number gives the same classes each time; None: others each time.

        Returns:
            ``[n, B]``.

        Raises:
            ParameterError: n is no whole number from 1.
        """
        n = require_whole(n, "n", 1)
        levels = np.random.default_rng(seed).random((n, len(self)))
        upper = self.probabilities.cumsum(axis=1)
        codes = np.stack([np.searchsorted(ends, row, side="right") for ends, row in zip(upper, levels.T, strict=True)])
        drawn: Array = self.classes[np.minimum(codes.T, len(self.classes) - 1)]
        return drawn

    def functions(self) -> Doubles:
        """Probabilities of the classes under each of the posterior's draws, ``[B, S, C]``.

        Draw k is the same function for all rows and calls, so that differences between rows mean something.

        Raises:
            ParameterError: There are no draws.
        """
        return self._by_class(self._draw_rows("draws", draws=True))

    def _by_class(self, values: Doubles) -> Doubles:
        """Values ``[..., C]`` in the order of `classes`."""
        return values[..., self._places]
