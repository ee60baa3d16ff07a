"""`Likelihood`, the base class of observation models: the distribution of a target given one draw.

`NumericLikelihood` is the base of those for numbers, `ClassLikelihood` of those for classes: Bernoulli with one logit
for two classes, categorical with one logit each for more. A model reads P network outputs per row. It may have learned
parameters of its own. They are point estimates, one set per member.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from murho.model.distributions.mixtures import WideRule
from murho.model.distributions.predictive import Predictive
from murho.model.distributions.target_transforms import Limits, Standardisation
from murho.model.errors import OptionError, TableError

NOISE_FLOOR = 1e-3
"""Smallest learned noise, as a fraction of the target's standard deviation.

Without a floor, a table without noise would drive the likelihood to infinity."""

INITIAL_NOISE = 0.5
"""Noise at the start of a fit, as a fraction of the target's standard deviation."""


class Likelihood(nn.Module, ABC):
    """An observation model, as fits, draws and answers use it.

    Attributes:
        kind: Its name on the command line and in ``model.json``.
        outputs: Network outputs per row, P.
        means: Number of means among the outputs, K. The means come first; the other outputs describe the scatter.
        mixture_outputs: Whether compiled code can read the outputs. They are then K means, K noises and K weights, in
            this order. A noise is ``NOISE_FLOOR + softplus(output)``. The weights are the softmax of the last K
            outputs. If the outputs are K means only, the noise is the same for every row and comes from `components`.
            Without weights K is 1.
        limits: Minimum and maximum of the target, standardised. A target at a limit counts as a value at or beyond it
            (`model.bbb.number_likelihoods`). None: there are none. `learn_target` sets it; draws and answers do not
            need it.
        only_transform: The one transform of the target that goes with the model; None: all do.
        wide_tails: Whether predictives get a wide component (`model.distributions.mixtures`).
    """

    kind: ClassVar[str]
    outputs: int
    means: int
    mixture_outputs: ClassVar[bool] = False
    limits: tuple[float, float] | None = None
    only_transform: ClassVar[str | None] = None
    wide_tails: ClassVar[bool] = True

    @classmethod
    def first_refused(cls, targets: NDArray[np.float64]) -> tuple[int, str] | None:  # noqa: ARG003 - most take all
        """Return the first target that the model can't describe.

        Args:
            targets: ``[N]``, the target's unit; NaN where it is missing.

        Returns:
            Its place, and what the model describes, in words; None: it describes all targets.
        """
        return None

    @classmethod
    def require_targets(cls, targets: NDArray[np.float64], name: str) -> None:
        """Check that the model can describe the targets.

        Args:
            targets: ``[N]``, the target's unit; NaN where it is missing.
            name: Name of the target, for messages.

        Raises:
            TableError: It can't describe one of them; its row is named.
        """
        refused = cls.first_refused(targets)
        if refused is not None:
            place, needed = refused
            raise TableError(
                f"column {name!r}, row {place + 1}: the target {targets[place]:.15g} is not {needed}, as {cls.kind} "
                "noise needs; correct the cell or leave the row out, or train with another --noise",
                row=place + 1,
            )

    @classmethod
    def allows(cls, limits: Limits) -> bool:  # noqa: ARG003 - most allow any
        """Whether the model can describe a target with these limits."""
        return True

    def learn_target(self, standardisation: Standardisation) -> None:
        """Take what the model needs of the target's transform, location, scale and limits, before a fit."""
        self.limits = standardisation.standard_limits()

    def function_values(self, outputs: Tensor, members: Tensor) -> Tensor:  # noqa: ARG002 - some models have parameters
        """Return function values of every row and draw, standardised; by default all outputs, as if of further draws.

        Args:
            outputs: Network outputs, ``[S, B, P]``.
            members: Member of each draw, ``[S]``.

        Returns:
            ``[S, B]``, or ``[S P, B]``.
        """
        return outputs.movedim(-1, 0).flatten(0, 1)

    def remember(self, share: float) -> None:
        """Hold the present noise as that of earlier rows, where it is a parameter without a prior of its own.

        The loss of every minibatch then counts these rows, too: ``share`` rows for each row of the fit.

        Args:
            share: Number of the earlier rows over that of the rows of the fit.
        """

    @property
    def initial_outputs(self) -> dict[int, float]:
        """Number of a network output → its initial value, for outputs that start near the same value in every row."""
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

    def reweight_mean_gradient(self, outputs: Tensor, weights: Tensor, beta: float) -> Tensor:  # noqa: ARG002 - of noise alone
        """Return the outputs, with the gradient by the means weighted: by default not.

        Args:
            outputs: Network outputs, ``[M, B, P]``.
            weights: Weight of each row, ``[B]`` or ``[M, B]``.
            beta: The weight is ``noise^(2 beta)`` over its mean over the rows. It is the weight of Seitzer et al. 2022
                ("On the pitfalls of heteroscedastic uncertainty estimation", equation 5), who weight the whole loss of
                a row by it, not divided by its mean. Here only the gradient by the row's mean is weighted, and that by
                its noise stays exact. 0 gives the exact gradient. 1 removes the effect of a row's noise on the fit of
                its mean. With 0 from the start, a row that is fitted badly early on gets a large noise, and its mean
                then stays badly fitted.
        """
        return outputs

    def earlier_loss(self) -> float | Tensor:
        """Return the loss of the rows that `remember` counts, for each row of the fit; summed over members."""
        return 0.0

    def with_scatter_of(self, outputs: Tensor, others: Tensor) -> Tensor:
        """Return outputs with the function values of one row and the scatter of another.

        Args:
            outputs: Network outputs of the rows that give the function values, ``[S, B, P]``.
            others: Network outputs of the rows that give the scatter, mixture weights included, ``[S, B, P]``.

        Returns:
            ``[S, B, P]``.
        """
        return torch.cat((outputs[..., : self.means], others[..., self.means :]), dim=-1)


class NumericLikelihood(Likelihood):
    """An observation model of numbers; most are a `model.bbb.number_likelihoods.GaussianMixtureLikelihood`."""

    @abstractmethod
    def parts(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return what `predictive` needs of the outputs: tensors broadcastable to ``[S, B, K]``, standardised.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member of each entry of the first dimension, ``[S]``; by default the M members in order.
        """

    @abstractmethod
    def predictive(
        self, parts: Sequence[Tensor], standardisation: Standardisation, wide: WideRule | None = None
    ) -> Predictive:
        """Return the raw predictive of B rows in the target's unit: the equal-weight mixture over S draws.

        Args:
            parts: `parts` of the S draws, float64.
            standardisation: Transform, location, scale and limits of the target.
            wide: The rule of wide components; None: there are none.
        """


class ClassLikelihood(Likelihood):
    """The probability of each of C classes given a draw. All outputs are function values, none is scatter.

    Attributes:
        classes: C.
    """

    wide_tails: ClassVar[bool] = False
    classes: int

    @abstractmethod
    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log probability of every class, ``[..., C]`` for outputs ``[..., P]``; any type of float."""


class Bernoulli(ClassLikelihood):
    """``p(second class) = sigmoid(output)``."""

    kind = "bernoulli"
    outputs = 1
    means = 1
    classes = 2

    def __init__(self, classes: int | None = 2) -> None:
        """Check the number of classes.

        Raises:
            OptionError: It is not two.
        """
        super().__init__()
        if classes != 2:
            raise OptionError(f"a bernoulli likelihood has two classes, not {classes}")

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log probabilities of both classes, ``[..., 2]``; see `ClassLikelihood.log_probabilities`."""
        logit = outputs[..., 0]
        return torch.stack((functional.logsigmoid(-logit), functional.logsigmoid(logit)), dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log probability of the observed class, ``[M, B]``; see `Likelihood.log_density`."""
        return functional.logsigmoid((2.0 * targets - 1.0) * outputs[..., 0])


class Categorical(ClassLikelihood):
    """``p(class) = softmax(outputs)``: one logit for each of C classes."""

    kind = "categorical"

    def __init__(self, classes: int | None) -> None:
        """Store the number of classes.

        Args:
            classes: C.

        Raises:
            OptionError: There are fewer than two.
        """
        super().__init__()
        if classes is None or classes < 2:
            raise OptionError(f"a categorical likelihood has two or more classes, not {classes}")
        self.classes = self.outputs = self.means = classes

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log probabilities of the C classes; see `ClassLikelihood.log_probabilities`."""
        return torch.log_softmax(outputs, dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log probability of the observed class, ``[M, B]``; see `Likelihood.log_density`."""
        log_probabilities = self.log_probabilities(outputs)
        index = targets.long().expand(log_probabilities.shape[:-1]).unsqueeze(-1)
        return log_probabilities.gather(-1, index).squeeze(-1)
