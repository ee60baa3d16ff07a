"""Which observation models of numbers suit a target: those that can describe its values and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.errors import OptionError
from murho.model.likelihoods.registry import LIKELIHOODS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from murho.model.distributions.limits import Limits
    from murho.model.training.options import TrainOptions

__all__ = ["require_noise_for", "suits"]


def require_noise_for(options: TrainOptions, targets: NDArray[np.float64], name: str, limits: Limits | None) -> None:
    """Check that the noise that the user has chosen goes with the target and the other options.

    Args:
        options: Validated options.
        targets: ``[N]``, the target's unit; NaN where it is missing.
        name: Name of the target, for messages.
        limits: Limits of the target.

    Raises:
        TableError: The noise can't describe a target; its row is named.
        OptionError: The noise goes with other limits or another transform.
    """
    if options.noise == "auto":
        return
    likelihood, noise = LIKELIHOODS[options.noise], f"--noise {options.noise}"
    likelihood.require_targets(targets, name)
    if options.transform not in ("auto", likelihood.only_transform or options.transform):
        raise OptionError(f"{noise} goes with --transform {likelihood.only_transform} alone: leave out --transform")
    if limits is not None and not likelihood.allows(limits):
        raise OptionError(
            f"{noise} does not go with the limits of target {name!r}: give --target-minimum -inf --target-maximum inf, "
            "or another --noise"
        )


def suits(kind: str, targets: NDArray[np.float64], limits: Limits | None, options: TrainOptions) -> bool:
    """Whether an observation model suits a target and the options of the user, so that a search may try it."""
    likelihood = LIKELIHOODS[kind]
    return (
        likelihood.first_refused(targets) is None
        and (limits is None or likelihood.allows(limits))
        and options.transform in ("auto", likelihood.only_transform or options.transform)
    )
