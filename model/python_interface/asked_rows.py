"""Rows about which a posterior is asked: the answers to any options, and to values that differ between rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from murho.model.data.schema_inference import columns_from_table
from murho.model.python_interface.value_errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

    from murho.model.data.schema import Columns, UnfamiliarValue
    from murho.model.engines.prediction import PredictOptions
    from murho.model.posterior.posterior import Posterior

__all__ = ["AskedRows", "probability_levels"]

VALUES_AT_ONCE = 64
"""Values that a pass asks of all its rows, although each row needs only some of them. A pass takes about as long as
that many values of a few rows."""


@dataclass(frozen=True)
class AskedRows:
    """Rows, and the posterior that is asked about them. Nothing is computed before it is asked for.

    Attributes:
        posterior: The posterior.
        columns: Canonical columns of the schema's features, ``[B]`` each.
        options: Options that all answers share.
    """

    posterior: Posterior
    columns: Columns
    options: PredictOptions

    @classmethod
    def of(cls, posterior: Posterior, table: pa.Table, options: PredictOptions) -> AskedRows:
        """The rows of a table.

        Raises:
            TableError: A feature is missing, or a cell does not fit; the message names column and row (from 1).
        """
        return cls(posterior, columns_from_table(table, posterior.schema), replace(options, percentiles=()))

    def __len__(self) -> int:
        """B."""
        return len(next(iter(self.columns.values())))

    def of_rows(self, rows: Any) -> AskedRows:
        """Some of the rows, by a number, a slice, a mask or numbers."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        columns = {name: column[chosen] for name, column in self.columns.items()}
        return AskedRows(self.posterior, columns, self.options)

    @cached_property
    def plain(self) -> Any:
        """The answer without percentiles: moments, or probabilities."""
        return self.answer()

    @cached_property
    def warnings(self) -> tuple[UnfamiliarValue, ...]:
        """What is unlike the training rows, sorted by row."""
        return tuple(self.posterior.input_warnings(self.columns, among=self.plain.outside))

    def answer(self, **changes: Any) -> Any:
        """The posterior's answer.

        Args:
            changes: Other options, by name.
        """
        return self.posterior.predict(self.columns, replace(self.options, **changes))

    def require_draws(self, what: str) -> None:
        """Check that the answer is from draws.

        Args:
            what: What needs them, for the message.

        Raises:
            ParameterError: ``samples`` is 0.
        """
        if self.options.samples == 0:
            raise ParameterError(f"samples: a whole number, at least 1 for {what}; it is 0, the mean alone")

    def at_values(
        self, values: NDArray[np.float64], asked: Literal["percentiles", "thresholds"]
    ) -> NDArray[np.float64]:
        """Percentiles, or probabilities of exceedance, at values of their own for every row.

        Args:
            values: ``[..., B]``.
            asked: The option that the values are given to.

        Returns:
            ``[..., B]``.
        """
        if not values.size:
            return np.empty(values.shape)
        flat = values.reshape(-1, len(self))
        result = np.empty(flat.shape)
        needed = max(1, len(flat))
        all_at_once = len(np.unique(flat)) <= max(VALUES_AT_ONCE, 2 * needed)
        step = max(1, len(self)) if all_at_once else max(1, VALUES_AT_ONCE // needed)
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            distinct, places = np.unique(flat[:, rows], return_inverse=True)
            part = self if all_at_once else self.of_rows(rows)
            answer = part.answer(**{asked: tuple(distinct.tolist())})
            table = answer.percentiles if asked == "percentiles" else answer.exceedance
            result[:, rows] = table[np.arange(len(part)), places.reshape(len(flat), -1)]
        return result.reshape(values.shape)

    def for_every_row(self, values: ArrayLike, name: str) -> NDArray[np.float64]:
        """Values as ``[..., B]``, by NumPy's rules of broadcasting.

        Args:
            values: A number, one number for every row ``[B]``, or ``[K, 1]`` for K numbers for every row.
            name: Name of the argument, for messages.

        Raises:
            ParameterError: The shape does not fit the rows.
        """
        try:
            numbers = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"{name}: numbers, not {values!r}") from error
        try:
            shape = np.broadcast_shapes(numbers.shape, (len(self),))
        except ValueError:
            shape = ()
        if not shape or shape[-1] != len(self):
            raise ParameterError(
                f"{name}: one number, or one for each of the {len(self)} rows; {numbers.size} numbers of every row are "
                f"np.reshape({name}, (-1, 1)), not the shape {numbers.shape}"
            )
        return np.broadcast_to(numbers, shape)


def probability_levels(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Levels after a check that each lies strictly between 0 and 1.

    Raises:
        ParameterError: One does not.
    """
    if not ((values > 0.0) & (values < 1.0)).all():
        hint = "; they are no per cent: 0.95, not 95" if (values > 1.0).any() else ""
        raise ParameterError(f"{name}: levels strictly between 0 and 1{hint}")
    return values
