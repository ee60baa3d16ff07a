"""The encodings by name: which class encodes a kind of feature.

A new encoding needs one class, a `model.encoding.feature_encodings.FeatureEncoding`, and one entry in `ENCODINGS`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from murho.model.data.column_overrides import FeatureKind
from murho.model.encoding.dates import Calendar
from murho.model.encoding.feature_encodings import FeatureEncoding, OneHot, Standard
from murho.model.encoding.piecewise import PiecewiseLinear

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENCODINGS", "MIXED", "PIECEWISE"]

PIECEWISE = "piecewise"
MIXED = "mixed"
"""Encoding of a training whose members read the ``piecewise`` inputs, half of them without the bins
(`model.networks.read_inputs`). Its encoder is ``piecewise``."""

ENCODINGS: Mapping[str, Mapping[FeatureKind, type[FeatureEncoding]]] = MappingProxyType(
    {
        "standard": MappingProxyType(
            {
                FeatureKind.NUMERIC: Standard,
                FeatureKind.BOOLEAN: Standard,
                FeatureKind.DATE: Calendar,
                FeatureKind.CATEGORICAL: OneHot,
            }
        ),
        PIECEWISE: MappingProxyType(
            {
                FeatureKind.NUMERIC: PiecewiseLinear,
                FeatureKind.BOOLEAN: Standard,
                FeatureKind.DATE: Calendar,
                FeatureKind.CATEGORICAL: OneHot,
            }
        ),
    }
)
"""Name of the encoding → feature kind → encoding class."""
