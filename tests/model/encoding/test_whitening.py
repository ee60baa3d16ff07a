import functools

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.encoding.encoder import Encoder
from murho.model.encoding.whitening import HIDDEN_VARIANCE
from tests.model.conftest import present
from tests.model.encoding.distribution_tables import schema_of


def sensors(rows: int = 400, *, difference: float = 1e-3, seed: int = 0) -> dict[str, npt.NDArray[np.float64]]:
    """Two sensors that differ by little, and a number of its own."""
    load, apart, other = np.random.default_rng(seed).normal(size=(3, rows))
    return {"left": 100.0 + 5.0 * load, "right": 3.0 * load + difference * apart, "other": other}


def fitted(columns: dict[str, npt.NDArray[np.float64]], encoding: str = "standard") -> Encoder:
    return Encoder.fit(schema_of(columns, imputed=False), columns, encoding=encoding, whitened=True)


def test_nothing_is_hidden_among_independent_numbers_or_behind_rounding_or_in_few_rows() -> None:
    generator = np.random.default_rng(2)
    independent = dict(zip("abc", generator.normal(size=(3, 200)), strict=True))
    assert fitted(independent).whitening is None
    copied = independent | {"d": 2.0 * independent["a"] + 1.0}  # follows from another but for rounding
    assert fitted(copied).whitening is None
    assert fitted(sensors(20)).whitening is None
    assert fitted({"a": generator.normal(size=200)}).whitening is None
    assert fitted(sensors()).whitening is not None


def test_rows_that_break_the_pattern_are_beyond_though_each_number_is_ordinary() -> None:
    columns = sensors()
    encoder = fitted(columns)
    broken = {name: column[:1].copy() for name, column in columns.items()}
    broken["right"] = broken["right"] - 0.5 * np.sign(broken["right"])  # 500 times the usual difference
    row = encoder.encode(broken).inputs[0]
    least, most = encoder.training_range
    names = list(encoder.names)
    held, beyond = (
        row[names.index(name)] for name in ("hidden direction 1", "hidden direction 1 beyond the training rows")
    )
    assert held in (least[3], most[3])
    assert abs(beyond) > np.log1p(100.0)
    outside = (row < least) | (row > most)
    assert [name for name, out in zip(names, outside, strict=True) if out] == [
        "hidden direction 1 beyond the training rows"
    ]


@functools.cache
def with_missing_cells() -> Encoder:
    training = sensors()
    for column in training.values():
        column[::50] = np.nan
    return fitted(training)


@settings(max_examples=30, deadline=None)
@given(
    cells=st.lists(
        st.tuples(*[st.floats(-1e300, 1e300, allow_nan=False) | st.just(np.nan)] * 3), min_size=1, max_size=40
    )
)
def test_a_row_is_encoded_alone_as_among_others_and_finite(cells: list[tuple[float, float, float]]) -> None:
    encoder = with_missing_cells()
    columns = dict(zip(("left", "right", "other"), np.array(cells).T, strict=True))
    together = encoder.encode(columns).inputs
    assert np.isfinite(together).all()
    for row in range(len(cells)):
        alone = encoder.encode({name: column[row : row + 1] for name, column in columns.items()})
        np.testing.assert_array_equal(alone.inputs[0], together[row])


def test_directions_are_the_small_principal_components() -> None:
    generator = np.random.default_rng(1)
    mixed = generator.normal(size=(500, 3)) * [1.0, 0.05, 0.02] @ np.linalg.qr(generator.normal(size=(3, 3)))[0]
    columns = {f"x{number}": column for number, column in enumerate(mixed.T)}
    whitening = present(fitted(columns).whitening)
    standardised = (mixed - mixed.mean(axis=0)) / mixed.std(axis=0)
    variances, vectors = np.linalg.eigh(standardised.T @ standardised / 500)
    hidden = variances < HIDDEN_VARIANCE
    assert len(whitening.minima) == hidden.sum() > 0
    np.testing.assert_allclose(whitening.variances, variances[hidden], rtol=1e-9)
    expected = vectors[:, hidden] / np.sqrt(variances[hidden])
    np.testing.assert_allclose(np.abs(whitening.axes), np.abs(expected), rtol=1e-6, atol=1e-9)
    assert (whitening.axes.max(axis=0) == np.abs(whitening.axes).max(axis=0)).all()  # whatever LAPACK's signs are
