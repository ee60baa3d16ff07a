"""What the tasks of the step and the engine benchmark share: a network with one output and known noise."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing import Self

__all__ = ["NOISE", "NetworkTask"]

NOISE = 0.2
"""Known standard deviation of the observation noise."""


@dataclass(frozen=True, slots=True)
class NetworkTask:
    """A network, and how to compute with it.

    Attributes:
        hidden: Widths of the hidden layers.
        variant: Which of the ways that the script knows; empty for its only or usual one.
        threads: How many to compute with.
        seed: Of everything random.
    """

    inputs: ClassVar[int]
    """Numbers in an encoded row, D."""

    hidden: tuple[int, ...]
    variant: str = field(default="", kw_only=True)
    threads: int = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def to_json(self) -> str:
        """One line for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote."""
        said = json.loads(text)
        return cls(**(said | {"hidden": tuple(said["hidden"])}))

    @property
    def outputs(self) -> int:
        """Of the network."""
        return 1

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """``(inputs, outputs)`` of each layer."""
        return list(pairwise((self.inputs, *self.hidden, self.outputs)))
