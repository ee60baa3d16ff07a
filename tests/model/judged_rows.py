"""Scores of predictives that are written down, not learned."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.network import inverse_softplus
from murho.model.bbb.number_likelihoods import HeteroscedasticNoise
from murho.model.calibration.conformal import ConformalMap
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoded
from murho.model.evaluation.judged_rows import RowWeights
from murho.model.evaluation.judging import judge_encoded
from murho.model.evaluation.number_scores import Bands, JudgedNumbers
from murho.model.predictive.forward import TorchEngine
from murho.model.predictive.plans import DrawnRows, TargetModel


def gaussian_posterior(calibration: ConformalMap | None = None, copies: int = 3) -> Posterior:
    """Stands in for a posterior: a row ``(mean, std)`` is its own predictive, a mixture of equal Gaussians."""
    target = TargetModel(HeteroscedasticNoise(), Standardisation(Identity(), 0.0, 1.0), None)

    def drawn(encoded: Encoded, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        means, noise = torch.from_numpy(encoded.inputs).double().T
        outputs = torch.stack((means, inverse_softplus(noise - NOISE_FLOOR)), dim=1).expand(copies, -1, -1)
        nowhere = torch.zeros(len(encoded), dtype=torch.bool)
        return DrawnRows(outputs, torch.zeros(copies).long(), nowhere, target, TorchEngine())

    return stand_in(drawn, calibration=calibration)


def stand_in(drawn: Callable[..., DrawnRows], **attributes: object) -> Posterior:
    """Stands in for a posterior of a number that draws as told."""
    schema = SimpleNamespace(target=SimpleNamespace(classes=None))
    told = {"device": torch.device("cpu"), "seed": 0, "calibration": None, "schema": schema} | attributes
    return cast("Posterior", SimpleNamespace(draw_rows=drawn, **told))


def judge_gaussians(
    means: NDArray[np.float64],
    stds: NDArray[np.float64],
    targets: NDArray[np.float64],
    calibration: ConformalMap | None = None,
    weights: NDArray[np.float64] | None = None,
) -> JudgedNumbers:
    """One Gaussian a row, judged; means and stds are rounded to float32."""
    rows = np.stack([means, stds], axis=1).astype(np.float32)
    judged = judge_encoded(gaussian_posterior(calibration), Encoded.like(rows), targets, samples=1)
    return cast("JudgedNumbers", replace(judged, weights=RowWeights.of(len(targets), weights)))


def judged_rows(errors: NDArray[np.float64], stds: NDArray[np.float64], inside: NDArray[np.bool_]) -> JudgedNumbers:
    """Rows of which only errors, std and whether the row lay inside its bands are known."""
    count = len(errors)
    nothing = np.zeros(count)
    bands = Bands(stds, nothing, nothing + 0.5, np.repeat(inside[:, None], 4, axis=1), np.zeros((count, 8), np.float32))
    values = {"square": errors**2, "absolute": np.abs(errors), "nll": nothing, "crps": nothing}
    return JudgedNumbers(
        rows=np.arange(count), targets=errors, doubt=nothing, mean=nothing, values=values, bands={"raw": bands}
    )
