"""Answers to other questions than predictions: totals, decisions, outcomes, explanations; and what asks for them."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from murho_client._cells import has_inexact, json_cells
from murho_client._data import Batch, to_batch
from murho_client._errors import InvalidInput, Problem
from murho_client._model import Model, prepare_batch, record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Shares = Mapping[str, NDArray[np.float64]]

__all__ = [
    "Counterfactual",
    "DecideOptions",
    "Decisions",
    "Explanation",
    "Outcomes",
    "Totals",
    "decide_request",
    "new_ids",
    "outcome_requests",
    "totals_request",
]


Array: TypeAlias = NDArray[np.float64]

MOMENTS = ("mean", "std", "epistemic_std", "aleatoric_std")
OUTCOMES_PER_REQUEST = 10_000


def _facts(document: Mapping[str, Any], names: Sequence[str], arrays: Sequence[str] = ()) -> dict[str, Any]:
    """Model, version and other keys of an answer; arrays are numbers, or None where the answer has null."""
    model = document["model"]
    values = {name: None if document[name] is None else np.array(document[name], np.float64) for name in arrays}
    return {"model": model["name"], "version": model["version"], **{name: document[name] for name in names}, **values}


@dataclass(frozen=True, eq=False)
class Totals:
    """Totals of G groups in the order of first rows, ``[G]``, or of a classifier's C classes, ``[G, C]``.

    Attributes:
        model: Name of the model.
        version: Its version.
        target: Name of the target.
        statistic: What was added up: ``sum``, ``mean``, ``count_above`` or ``count``.
        groups: The label of each group, a tuple with one entry for each of ``by``.
        rows: Number of rows of each group, ``[G]``.
        classes: The classes; None for numbers.
        mean: In the target's unit, or counts.
        std: The standard deviation; None without draws, as the next three.
        epistemic_std: Its part that the rows share.
        aleatoric_std: Its part from the noise of the rows.
        percentiles: Level → percentiles.
        exceedance: Threshold → the probability that a total exceeds it; None if not asked for.
        calibrated: Whether the spread is calibrated.
        warnings: What is unusual, in words.
    """

    model: str
    version: str
    target: str
    statistic: str
    groups: list[tuple[Any, ...]]
    rows: NDArray[np.int64]
    classes: list[str] | None
    mean: Array
    std: Array | None
    epistemic_std: Array | None
    aleatoric_std: Array | None
    percentiles: Mapping[float, Array] | None
    exceedance: Mapping[float, Array] | None
    calibrated: bool
    warnings: list[str]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the JSON answer of a service."""

        def by_value(name: str, key: str) -> Mapping[float, Array] | None:
            found = document.get(name)
            if found is None:
                return None
            values = np.array(found["values"], dtype=np.float64)
            return {value: values[..., place] for place, value in enumerate(found[key])}

        return cls(
            **_facts(document, ("target", "statistic", "calibrated"), MOMENTS),
            groups=[tuple(label) for label in document["groups"]],
            rows=np.array(document["rows"], dtype=np.int64),
            classes=document.get("classes"),
            percentiles=by_value("percentiles", "levels"),
            exceedance=by_value("exceedance", "thresholds"),
            warnings=[warning["message"] for warning in document["warnings"]],
        )


def totals_request(batch: Batch, model: Model | None, by: Sequence[str], given: Mapping[str, object]) -> dict[str, Any]:
    """Return the rows, how they are grouped, and what else is said of them, as keys of the request.

    Args:
        batch: The rows.
        model: The model; None: it has all columns.
        by: Columns.
        given: ``statistic`` and ``threshold``; ``weights`` and ``units``, each a column or one entry a row.

    Raises:
        InvalidInput: A column is missing, or rows are grouped by several columns that are no features.
    """
    columns = dict(zip(batch.names or (), batch.columns, strict=True))
    features = {feature.name for feature in model.features} if model is not None else {*columns}
    request = {key: value for key, value in given.items() if value is not None}
    lists = {key: value for key, value in request.items() if key in ("weights", "units")}
    named = {key: value for key, value in lists.items() if isinstance(value, str)}
    for name in (*by, *named.values()):
        if name not in columns:
            raise InvalidInput([Problem(f"There is no column {name!r}.", feature=name)])
    for key, value in lists.items():
        request[key] = json_cells(columns[named[key]] if key in named else np.asarray(value))
    # The service groups features by the numbers that the model gets; labels keep all digits.
    if all(name in features for name in by) and not (len(by) == 1 and has_inexact(columns[by[0]])):
        request["by"] = list(by)
    elif len(by) == 1:
        request["groups"] = json_cells(columns[by[0]])
    else:
        raise InvalidInput([Problem("Group by features, or by one other column.", feature=by[0])])
    unused = {*by, *named.values()} - features
    if unused:
        kept = [name for name in columns if name not in unused]
        batch = replace(batch, names=tuple(kept), columns=[columns[name] for name in kept])
    return {"inputs": prepare_batch(batch, model).inputs(), **request}


class DecideOptions(TypedDict, total=False):
    """Options of a decision; see `Client.decide`."""

    policy: str
    goal: str
    width: float
    threshold: float
    at_least: float
    abstain: Mapping[str, float]
    draw: Sequence[int]
    samples: int
    seed: int | None
    calibrated: bool
    record: bool
    ids: Sequence[str]
    timeout: float | None
    headers: Mapping[str, str] | None


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions for N contexts, in order, between A actions.

    Attributes:
        model: Name of the model.
        version: Its version.
        target: Name of the target.
        policy: How actions were chosen.
        samples: Draws behind the answer.
        seed: Their seed.
        action: Name of the action of each context, or ``unsure``.
        propensity: Probability of this choice over the draws, ``[N]``.
        draw: Number of the draw that decided, ``[N]``; None for other policies than ``thompson``.
        actions: Names of the actions, ``[A]``.
        mean: Expected value of each action, with its cost, ``[N, A]``.
        std: Standard deviation of a new value, ``[N, A]``.
        epistemic_std: Its part that the draws disagree about, ``[N, A]``.
        probability_best: Share of the draws under which the action is the best, ``[N, A]``.
        calibrated: Whether mean, std and epistemic_std are calibrated.
        ids: Of recorded decisions; None where nothing was chosen; empty: none are recorded.
        warnings: What is unusual, in words.
        raw: The answer as it came.
    """

    model: str
    version: str
    target: str
    policy: str
    samples: int
    seed: int
    action: list[str]
    propensity: Array
    draw: NDArray[np.int64] | None
    actions: list[str]
    mean: Array
    std: Array
    epistemic_std: Array
    probability_best: Array
    calibrated: bool
    ids: list[str | None]
    warnings: list[str]
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the JSON answer of a service."""
        return cls(
            **_facts(
                document,
                ("target", "policy", "samples", "seed", "action", "actions", "calibrated"),
                ("propensity", "mean", "std", "epistemic_std", "probability_best"),
            ),
            draw=np.array(document["draw"], dtype=np.int64) if "draw" in document else None,
            ids=document.get("ids", []),
            warnings=[warning["message"] for warning in document["warnings"]],
            raw=document,
        )


def new_ids(rows: int) -> list[str]:
    """Ids of rows to record, in the order of time, which nobody else makes.

    The service would make ids, too. But a request that is sent again, because its answer was lost, is then a second
    record; with the same ids it is the same one.
    """
    prefix = f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(12)}"
    return [f"{prefix}-{row}" for row in range(rows)]


def decide_request(
    contexts: object, actions: Sequence[Mapping[str, Any]] | None, model: Model | None, options: DecideOptions
) -> dict[str, Any]:
    """Return the document of a request.

    Raises:
        TypeError: There is no such option.
        InvalidInput: The contexts have no names, as the service can't know which features they are.
    """
    for name in options.keys() - DecideOptions.__annotations__.keys():
        raise TypeError(f"decide() has no option {name!r}. It has {', '.join(DecideOptions.__annotations__)}.")
    sent = {name: value for name, value in options.items() if name not in ("timeout", "headers") and value is not None}
    if "draw" in options:
        sent["draw"] = [int(draw) for draw in options["draw"]]
    if actions is not None:
        sent["actions"] = [
            {**each, "inputs": record(to_batch(dict(each["inputs"])), model)} if each.get("inputs") else each
            for each in actions
        ]
    batch = to_batch(contexts)
    if batch.names is None and len(batch.columns) != len(() if model is None else model.features):
        raise InvalidInput([Problem("Contexts need names of their columns: they don't have all features.")])
    if sent.get("record") and "ids" not in sent:
        sent["ids"] = new_ids(batch.rows)
    return {"contexts": prepare_batch(batch, model).inputs(), **sent}


@dataclass(frozen=True)
class Outcomes:
    """What became of outcomes.

    Attributes:
        accepted: Those that the service keeps now; one that was there already counts, too.
        revised: Of these, those that replaced another value.
        unknown: Id → why it isn't kept.
    """

    accepted: int
    revised: int
    unknown: Mapping[str, str]

    @classmethod
    def of(cls, documents: Sequence[Mapping[str, Any]]) -> Self:
        """Add up the JSON answers of a service."""
        unknown = {each["id"]: each["why"] for document in documents for each in document["unknown"]}
        accepted, revised = (sum(document[name] for document in documents) for name in ("accepted", "revised"))
        return cls(accepted, revised, unknown)


def outcome_requests(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the documents of requests for the columns ``id`` and ``value``.

    Raises:
        InvalidInput: There are other columns.
    """
    columns = dict(zip(batch.names or (), batch.columns, strict=True)) if batch.names else {}
    if sorted(columns) != ["id", "value"]:
        raise InvalidInput([Problem("Outcomes have the columns id and value, and no others.")])
    ids, values = (json_cells(columns[name]) for name in ("id", "value"))
    for start in range(0, batch.rows, OUTCOMES_PER_REQUEST):
        part = slice(start, start + OUTCOMES_PER_REQUEST)
        yield {"outcomes": [{"id": key, "value": value} for key, value in zip(ids[part], values[part], strict=True)]}


@dataclass(frozen=True, eq=False)
class Explanation:
    """What each known cell of B rows adds to their answers, for F features.

    Attributes:
        model: Name of the model.
        version: Its version.
        features: The features.
        baseline: The answer if no cell is known, ``[B]`` each: ``mean``, ``epistemic_variance`` and
            ``aleatoric_variance``; of classes ``probability`` (of the likeliest), ``entropy``, ``epistemic_entropy``.
        shares: The same names, ``[B, F]`` each. With the baseline they add up to the answer.
        mc_error: Standard errors of the shares; None where they are exact.
        worth_asking: For each row its missing cells, the most helpful one first: ``feature``, and ``fall``, how far the
            variance (of a class: the entropy) is expected to fall once it is known.
    """

    model: str
    version: str
    features: tuple[str, ...]
    baseline: Shares
    shares: Shares
    mc_error: Shares | None
    worth_asking: list[list[dict[str, Any]]]

    @classmethod
    def of(cls, documents: Sequence[Mapping[str, Any]]) -> Self:
        """From the JSON answers of a service for consecutive rows."""
        first, shares = documents[0], [document["why"] for document in documents]
        features, names = tuple(first["why"]["features"]), tuple(first["why"]["baseline"])
        asked = [
            document.get("worth_asking") or [[] for _ in of[names[0]]]
            for document, of in zip(documents, shares, strict=True)
        ]

        def joined(parts: Sequence[Mapping[str, Any]]) -> Shares:
            return {name: np.concatenate([np.array(part[name], dtype=np.float64) for part in parts]) for name in names}

        exact = [{name: np.zeros((len(of[name]), len(features))) for name in names} for of in shares]
        errors = [of.get("mc_error") or zeros for of, zeros in zip(shares, exact, strict=True)]
        return cls(
            first["model"]["name"],
            first["model"]["version"],
            features,
            joined([of["baseline"] for of in shares]),
            joined(shares),
            joined(errors) if any("mc_error" in of for of in shares) else None,
            [of_row for of_rows in asked for of_row in of_rows],
        )


@dataclass(frozen=True)
class Counterfactual:
    """The nearest rows that reach a goal.

    Attributes:
        model: Name of the model.
        version: Its version.
        already_reached: Whether the given row reaches it as it is.
        found: The rows, the nearest first: ``inputs``, ``changes`` (each ``feature``, ``from``, ``to``), ``distance``,
            and the answer: ``mean``, ``std`` and ``exceedance``, or ``prediction`` and ``probability``.
        message: Why there is none; or None.
    """

    model: str
    version: str
    already_reached: bool
    found: list[dict[str, Any]]
    message: str | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the JSON answer of a service."""
        return cls(**_facts(document, ("already_reached", "found", "message")))
