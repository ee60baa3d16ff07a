"""What the predictive distributions of numbers and of classes have in common: the rows that they are of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.python_interface.value_errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import UnfamiliarValue
    from murho.model.python_interface.asked_rows import AskedRows

__all__ = ["SHOWN", "Distribution", "require_sample_size"]

SHOWN = 5
"""Rows in a ``repr``."""


class Distribution:
    """The predictive distribution of the target for each of B rows."""

    def __init__(self, rows: AskedRows) -> None:
        """Describe the target of rows; nothing is computed before it is asked for."""
        self._rows = rows

    def __len__(self) -> int:
        """B."""
        return len(self._rows)

    @property
    def calibrated(self) -> bool:
        """Whether everything is calibrated, but for the mean of a number, or all is raw."""
        return bool(self._rows.plain.calibrated)

    @property
    def warnings(self) -> tuple[UnfamiliarValue, ...]:
        """What is unlike the training rows: ``row`` (from 0), ``feature`` and ``message`` of each, sorted by row."""
        return self._rows.warnings

    @property
    def outside(self) -> NDArray[np.bool_] | None:
        """Whether each row lies beyond the training rows, ``[B]``; None: not known."""
        mask: NDArray[np.bool_] | None = self._rows.plain.outside
        return mask

    def _drawn(self, name: str) -> NDArray[np.float64]:
        """A field of the plain answer that takes draws."""
        self._rows.require_draws(name)
        values: NDArray[np.float64] = getattr(self._rows.plain, name)
        return values


def require_sample_size(n: int) -> None:
    """Check the n of ``sample``.

    Raises:
        ParameterError: n is no whole number from 1.
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ParameterError(f"n: a whole number from 1, not {n!r}")
