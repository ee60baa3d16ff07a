"""A model as the service describes it, and the check of rows against its features before they are sent."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any

from murho_client._cells import cell_types
from murho_client._data import MAX_PROBLEMS, Batch
from murho_client._errors import InvalidInput, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Feature", "Model", "check", "fitted"]

# Truth values are numbers 0 and 1 in a NumPy matrix, and `fitted` turns them back. Kinds that this client doesn't know
# are left to the service.
TYPES: dict[str, frozenset[type]] = {
    "numeric": frozenset({NoneType, int, float}),
    "boolean": frozenset({NoneType, bool, int, float}),
    "date": frozenset({NoneType, str}),
    "categorical": frozenset({NoneType, bool, int, float, str}),
}
EXPECTED = {
    "numeric": "a number",
    "boolean": "True or False",
    "date": "a date, or ISO 8601 text such as '2024-05-31'",
}
TYPE_NAMES: dict[type, str] = {bool: "truth value", int: "number", float: "number", str: "text"}
MAX_SHOWN = 60


@dataclass(frozen=True)
class Feature:
    """One input column of a model.

    Attributes:
        name: The column's name.
        kind: `numeric`, `boolean`, `date` or `categorical`.
        unit: Unit of the numbers, if one is known.
        min: Smallest training value; a date is ISO 8601 text. None for categories.
        max: Largest training value, as for the smallest.
        categories: The training categories; None unless categorical.
        missing: Whether missing cells are accepted. If none was missing in training, the answer averages over what the
            cell may have been, and a warning says so.
        reading: How texts of this feature are read, such as `$3,504.00`; None if only plain cells are. Plain numbers
            and ISO 8601 dates are read in any case.
    """

    name: str
    kind: str
    unit: str | None = None
    min: float | str | None = None
    max: float | str | None = None
    categories: tuple[str, ...] | None = None
    missing: bool = False
    reading: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Model:
    """A model that the service offers.

    Attributes:
        name: Name of the model.
        version: The version that is described.
        versions: All versions that can be asked for.
        task: `regression` or `classification`.
        target: Name of the predicted column.
        unit: Unit of the target, if one is known.
        classes: The classes of a classifier; None for a regression.
        features: The input columns in schema order.
        metrics: Figures on held-out rows.
        raw: All that the service says about the model.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    task: str
    target: str
    unit: str | None
    classes: tuple[str, ...] | None
    features: tuple[Feature, ...]
    metrics: Mapping[str, Any] = field(repr=False)
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Model:
        """Reads the answer of `GET /models/NAME`.

        Raises:
            ValueError: A key is missing, or its value has another form.
        """
        try:
            target = described["target"]
            classes = target.get("classes")
            return cls(
                name=str(described["name"]),
                version=str(described["version"]),
                versions=tuple(map(str, described.get("versions") or [described["version"]])),
                task=str(described.get("task", "regression")),
                target=str(target["name"]),
                unit=target.get("unit"),
                classes=None if classes is None else tuple(map(str, classes)),
                features=tuple(map(_feature, described["features"])),
                metrics=described.get("metrics") or {},
                raw=described,
            )
        except KeyError as error:
            raise ValueError(f"the key {error} is missing") from None
        except (AttributeError, TypeError) as error:
            raise ValueError(f"a value has another form than expected: {error}") from None


def _feature(described: Mapping[str, Any]) -> Feature:
    categories = described.get("categories")
    return Feature(
        name=str(described["name"]),
        kind=str(described["kind"]),
        unit=described.get("unit"),
        min=described.get("min"),
        max=described.get("max"),
        categories=None if categories is None else tuple(map(str, categories)),
        missing=bool(described.get("missing", False)),
        reading=described.get("reading"),
    )


def check(batch: Batch, model: Model) -> None:
    """Checks that rows have the features of a model, with cells of the right kind.

    A column with the name of the target is allowed; it isn't sent. Whether a missing cell, a category or the text of a
    date is accepted, the service decides.

    Raises:
        InvalidInput: A feature is missing, a column is no feature, a matrix has another width, or a cell has another
            kind. At most 20 problems are listed.
    """
    if batch.names is None and len(batch.columns) != len(model.features):
        names = [feature.name for feature in model.features]
        listed = ", ".join(names[:MAX_PROBLEMS]) + (", …" if len(names) > MAX_PROBLEMS else "")
        message = (
            f"The matrix has {len(batch.columns)} columns; {model.name!r} takes {len(names)} in this order: {listed}."
        )
        raise InvalidInput([Problem(message)])
    columns = _by_name(batch, model)
    problems = _name_problems(columns, model)
    total = len(problems)
    cells: list[tuple[int, int, Problem]] = []
    for position, feature in enumerate(model.features):
        if feature.name in columns:
            refused = _refused(feature, columns[feature.name])
            total += len(refused)
            for row in refused[:MAX_PROBLEMS]:
                message = _explain(feature, columns[feature.name][row])
                cells.append((row, position, batch.problem(message, row, feature.name)))
    cells.sort(key=lambda cell: cell[:2])
    problems += [problem for _, _, problem in cells]
    if problems:
        raise InvalidInput(problems[:MAX_PROBLEMS], total)


def fitted(batch: Batch, model: Model) -> Batch:
    """The model's features alone, named and in schema order, with cells of the feature's kind.

    Args:
        batch: Rows that `check` accepts.
        model: The model.
    """
    columns = _by_name(batch, model)
    kept = [feature for feature in model.features if feature.name in columns]
    cells = [_as_kind(feature.kind, columns[feature.name]) for feature in kept]
    return Batch(tuple(feature.name for feature in kept), cells, batch.rows, batch.labels)


def _by_name(batch: Batch, model: Model) -> dict[str, Sequence[Any]]:
    names: Iterable[str] = (feature.name for feature in model.features) if batch.names is None else batch.names
    return dict(zip(names, batch.columns, strict=True))


def _name_problems(columns: Mapping[str, Any], model: Model) -> list[Problem]:
    """A problem for each feature that is missing, and for each column that is no feature."""
    names = [feature.name for feature in model.features]
    spare = [name for name in columns if name not in names and name != model.target]
    missing = [name for name in names if name not in columns]
    problems = []
    for name in missing:
        near = _nearest(name, spare)
        hint = f"Is it the column {near!r}?" if near else "Give None in each row where the value is unknown."
        problems.append(Problem(f"The feature is missing. {hint}", feature=name))
    left_out = model.raw.get("left_out") or {}
    for name in spare:
        if name in left_out:
            message = f"The column was left out in training ({left_out[name]}). Leave it out."
        else:
            near = _nearest(name, missing or names)
            message = f"{model.name!r} has no such feature. " + (f"Did you mean {near!r}?" if near else "Leave it out.")
        problems.append(Problem(message, feature=name[:MAX_SHOWN]))
    return problems


def _nearest(name: str, names: Sequence[str]) -> str | None:
    """The most similar name, also one that differs by case alone; None if none is similar."""
    if len(name) > MAX_SHOWN:
        return None  # difflib takes quadratic time
    lowered = {other.casefold(): other for other in names}
    found = difflib.get_close_matches(name.casefold(), list(lowered), n=1)
    return lowered[found[0]] if found else None


def _refused(feature: Feature, column: Sequence[Any]) -> list[int]:
    """The rows whose cell has another kind than the feature."""
    allowed = TYPES.get(feature.kind)
    if allowed is None:
        return []
    if feature.reading is not None:  # the service reads texts as in training, and says which it can't read
        allowed = allowed | {str, int, float}
    if cell_types(column) <= allowed and (feature.kind != "boolean" or cell_types(column) <= {bool, NoneType}):
        return []
    if feature.kind == "boolean":
        # True == 1, so this is all of True, False, 0 and 1 (also 1.0).
        return [row for row, cell in enumerate(column) if cell is not None and cell not in (0, 1)]
    return [row for row, cell in enumerate(column) if cell is not None and type(cell) not in allowed]


def _explain(feature: Feature, cell: Any) -> str:
    shown = repr(cell) if len(repr(cell)) <= MAX_SHOWN else f"{repr(cell)[:MAX_SHOWN]}…"
    advice = " Convert the column, for example with float()." if feature.kind == "numeric" and type(cell) is str else ""
    return f"Expected {EXPECTED[feature.kind]}, not the {TYPE_NAMES[type(cell)]} {shown}.{advice}"


def _as_kind(kind: str, column: Sequence[Any]) -> Sequence[Any]:
    """The column with truth values where the feature has them, and with none where it has categories."""
    types = cell_types(column)
    if kind == "boolean" and not types <= {bool, NoneType}:
        return [None if cell is None else bool(cell) for cell in column]
    if kind == "categorical" and bool in types:
        return [str(cell).lower() if type(cell) is bool else cell for cell in column]
    return column
