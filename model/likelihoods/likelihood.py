"""What every observation model is: how a target scatters around the function value of a draw.

All models work in standardised units of the target. A model reads P network outputs a row. Its own learned parameters,
if it has any, are point estimates, one set a member.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["INITIAL_NOISE", "LOG_SQRT_2PI", "NOISE_FLOOR", "Likelihood", "LikelihoodOptions"]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)

NOISE_FLOOR = 1e-3
"""Smallest learned noise, as a fraction of the target's standard deviation.

Without a floor, a table without noise would drive the likelihood to infinity."""

INITIAL_NOISE = 0.5
"""Noise at the start of a fit, as a fraction of the target's standard deviation."""


@dataclass(frozen=True, slots=True)
class LikelihoodOptions:
    """What an observation model may be told.

    Attributes:
        members: M.
        sigma: Known noise in standardised units, for ``fixed``.
        components: K, for ``mixture``.
    """

    members: int
    sigma: float | None = None
    components: int | None = None


class Likelihood(nn.Module, ABC):
    """An observation model: what fits, draws and answers need of it.

    Attributes:
        kind: Its name on the command line and in ``model.json``.
        outputs: Network outputs a row, P.
        means: How many of the outputs are means, K: the first ones. The others describe the scatter.
        mixture_outputs: Whether compiled code can read the outputs. They are then K means, K noises and K weights, in
            this order. ``NOISE_FLOOR + softplus(output)`` is a noise, and the softmax of the last K outputs gives the
            weights. With K means alone, the noise of a row is the same everywhere and that of `components`; without
            weights K is 1.
    """

    kind: ClassVar[str]
    outputs: int
    means: int
    mixture_outputs: ClassVar[bool] = False

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:  # noqa: ARG003 - most models need none of them
        """A model before the fit.

        Args:
            options: What it may be told.

        Raises:
            OptionError: An option that the model needs is missing or out of range.
        """
        return cls()

    def to_json(self) -> dict[str, Any]:
        """Kind and known parameters, for ``model.json``; what the model doesn't have is null."""
        return {"kind": self.kind, "sigma": None, "components": None}

    @property
    def initial_outputs(self) -> dict[int, float]:
        """Outputs that start near a constant in every row, by their number."""
        return {}

    @abstractmethod
    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log density of every row under every draw.

        Args:
            outputs: Network outputs, ``[M, B, P]``.
            targets: Standardised targets, ``[B]`` or ``[M, B]``.

        Returns:
            ``[M, B]``, nats.
        """

    @abstractmethod
    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, beta: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """`log_density`, and ``factor`` times its derivative, in closed form.

        Args:
            outputs: Network outputs, ``[M, B, P]``.
            targets: Standardised targets, ``[B]`` or ``[M, B]``.
            factor: Multiplies the derivative.
            beta: Weights the derivative by the means with ``noise^(2 beta)`` (Seitzer et al. 2022, "On the pitfalls of
                heteroscedastic uncertainty estimation", equation 5). 0 gives the exact derivative. At 1 the noise of a
                row no longer matters for its mean. Without it, rows that are badly fitted early on would be called
                noisy, and never be fitted.

        Returns:
            Log density ``[M, B]``, and the derivative by the outputs ``[M, B, P]``. The derivative of the sum over
            rows by the model's own parameters is left in their ``grad``.
        """

    @abstractmethod
    def with_scatter_of(self, outputs: Tensor, others: Tensor) -> Tensor:
        """Outputs with the function values of one row and the scatter of another.

        Args:
            outputs: Network outputs of the rows whose function values are wanted, ``[S, B, P]``.
            others: Those of the rows whose scatter is wanted, ``[S, B, P]``. The weights of a mixture are part of it.

        Returns:
            ``[S, B, P]``.
        """

    @abstractmethod
    def components(
        self, outputs: Tensor, members: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The distribution of an observation given each draw: K Gaussians.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member behind each entry of the first dimension, ``[S]``; by default they are the M members.

        Returns:
            Means ``[S, B, K]``, standard deviations broadcastable to them, and weights ``[S, B, K]`` of sum 1
            over K, or None where K is 1.
        """
