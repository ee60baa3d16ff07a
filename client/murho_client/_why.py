"""Why rows have their answers, what would help, and which rows would have the answers that are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Shares = Mapping[str, NDArray[np.float64]]

__all__ = ["Counterfactual", "Explanation"]


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
        reached: Whether the given row reaches it as it is.
        found: The rows, the nearest first: ``inputs``, ``changes`` (each ``feature``, ``from``, ``to``), ``distance``,
            and the answer: ``mean``, ``std`` and ``exceedance``, or ``prediction`` and ``probability``.
        message: Why there is none; or None.
    """

    model: str
    version: str
    reached: bool
    found: list[dict[str, Any]]
    message: str | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the JSON answer of a service."""
        model = document["model"]
        return cls(model["name"], model["version"], document["reached"], document["found"], document["message"])
