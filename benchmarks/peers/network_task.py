"""The common part of the tasks of the step and the engine benchmark: a network with one output and known noise."""

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
    """A network, and options of the computation.

    Attributes:
        hidden: Widths of the hidden layers.
        variant: Variant of the script; empty for its only or usual one.
        threads: Number of threads.
        seed: Seed of all random numbers.
    """

    inputs: ClassVar[int]
    """Encoded features, D."""

    hidden: tuple[int, ...]
    variant: str = field(default="", kw_only=True)
    threads: int = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def to_json(self) -> str:
        """The task as one line of JSON, for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The task from the output of `to_json`."""
        values = json.loads(text)
        return cls(**(values | {"hidden": tuple(values["hidden"])}))

    @property
    def outputs(self) -> int:
        """Number of outputs of the network."""
        return 1

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """``(inputs, outputs)`` of each layer."""
        return list(pairwise((self.inputs, *self.hidden, self.outputs)))
