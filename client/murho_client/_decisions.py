"""Decisions: for each context one of several actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy as np

from murho_client._data import Batch, to_batch
from murho_client._errors import InvalidInput, Problem
from murho_client._model import Model, fitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["DecideOptions", "Decisions", "decide_request"]


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
    propensity: NDArray[np.float64]
    draw: NDArray[np.int64] | None
    actions: list[str]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    epistemic_std: NDArray[np.float64]
    probability_best: NDArray[np.float64]
    calibrated: bool
    ids: list[str | None]
    warnings: list[str]
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the JSON answer of a service."""

        def numbers(name: str) -> NDArray[np.float64]:
            return np.array(document[name], dtype=np.float64)

        return cls(
            document["model"]["name"],
            document["model"]["version"],
            document["target"],
            document["policy"],
            document["samples"],
            document["seed"],
            document["action"],
            numbers("propensity"),
            np.array(document["draw"], dtype=np.int64) if "draw" in document else None,
            document["actions"],
            numbers("mean"),
            numbers("std"),
            numbers("epistemic_std"),
            numbers("probability_best"),
            document["calibrated"],
            document.get("ids", []),
            [warning["message"] for warning in document["warnings"]],
            document,
        )


def decide_request(
    contexts: object, actions: Sequence[Mapping[str, Any]] | None, model: Model | None, options: DecideOptions
) -> dict[str, Any]:
    """The document of a request.

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
        batches = [to_batch(dict(each["inputs"])) if each.get("inputs") else None for each in actions]
        cells = [{} if batch is None else {"inputs": _record(batch, model)} for batch in batches]
        sent["actions"] = [{**each, **inputs} for each, inputs in zip(actions, cells, strict=True)]
    batch = to_batch(contexts)
    if batch.names is None and len(batch.columns) != len(() if model is None else model.features):
        raise InvalidInput([Problem("Contexts need names of their columns: they don't have all features.")])
    return {"contexts": (batch if model is None else fitted(batch, model)).inputs(), **sent}


def _record(batch: Batch, model: Model | None) -> dict[str, Any]:
    """The single row as an object, in the form of the model."""
    columns = (batch if model is None else fitted(batch, model)).inputs()
    return {name: cells[0] for name, cells in dict(columns).items()}
