"""Names for arrays of one type; docstrings say their shapes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = NDArray[np.float32]
"""Single precision."""
Ints: TypeAlias = NDArray[np.int64]
Places: TypeAlias = NDArray[np.intp]
"""Places in another array."""
Bools: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
"""Of any type, such as a canonical column."""
