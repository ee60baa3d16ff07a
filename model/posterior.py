"""A loaded checkpoint that answers: rows in, the predictive distribution of the target out.

The answer for a row depends on the checkpoint, the row and the options alone. Rows are worked through in
tiles, which changes nothing but memory.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from model.calibration import ConformalMap
from model.checkpoint import read_facts, read_tensors
from model.draws import Draws, make_draws, mean_network, mirrored
from model.encoding import Encoder
from model.errors import CheckpointError, OptionError
from model.forward import forward
from model.monte_carlo_error import MonteCarloError, monte_carlo_error
from model.networks import Architecture
from model.observation import make_likelihood
from model.predictive import Predictive, function_exceedance, function_quantiles
from model.schema import Schema
from model.transforms import transform_from_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from model.schema import Columns

__all__ = ["BEYOND", "DEFAULT_PERCENTILES", "DEFAULT_SAMPLES", "Posterior", "PredictOptions", "Prediction"]

DEFAULT_SAMPLES = 256
DEFAULT_PERCENTILES = (5.0, 50.0, 95.0)
BEYOND = "edge"
"""The rule, named in ``model.json``, for rows beyond the training rows: they scatter as rows at the edge do, and
calibration only widens their bands."""
TILE_VALUES = 2**19
"""Function values worked on at a time: 4 MiB of float64, a few times over for temporaries."""
KEPT_SEEDS = 4
KEPT_BYTES = 256 * 2**20
"""Draws of recent seeds that are kept: at most so many seeds and so many bytes in all."""


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """What to answer.

    Attributes:
        samples: S, the number of draws; 0 asks for the mu-only mean.
        percentiles: Levels, strictly between 0 and 100.
        seed: Seed of the draws; the checkpoint's own by default.
        noise: Whether to describe a new observation, or the function alone.
        thresholds: Values of the target, for each of which to give the probability of exceeding it.
        draws: Whether to add the function value of every draw.
        calibrated: Whether percentiles and exceedance go through the checkpoint's calibration, if it has one.
        mc_error: Whether to add the standard errors that the answer has for the finite number of draws.
    """

    samples: int = DEFAULT_SAMPLES
    percentiles: tuple[float, ...] = DEFAULT_PERCENTILES
    seed: int | None = None
    noise: bool = True
    thresholds: tuple[float, ...] = ()
    draws: bool = False
    calibrated: bool = True
    mc_error: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer; every number in the target's own unit, float64.

    Attributes:
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether percentiles and exceedance went through the checkpoint's calibration.
        mean: ``[B]``.
        std: Standard deviation of the predictive, ``[B]``; None if S is 0, as are the next four.
        epistemic_std: Spread of the function values over draws, ``[B]``.
        aleatoric_std: Spread of the observation noise, ``[B]``.
        percentiles: ``[B, K]``.
        exceedance: ``[B, T]`` for T thresholds; None also if there are no thresholds.
        draws: Function values, ``[B, S]``; None unless asked for.
        mc_error: Standard errors for the finite number of draws; None unless asked for, and if S is 0.
    """

    samples: int
    seed: int
    calibrated: bool
    mean: NDArray[np.float64]
    std: NDArray[np.float64] | None = None
    epistemic_std: NDArray[np.float64] | None = None
    aleatoric_std: NDArray[np.float64] | None = None
    percentiles: NDArray[np.float64] | None = None
    exceedance: NDArray[np.float64] | None = None
    draws: NDArray[np.float64] | None = None
    mc_error: MonteCarloError | None = None


class Posterior:
    """The variational posterior of a checkpoint, on one device.

    Not thread-safe: one thread computes, as in the service.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        *,
        name: str = "unsaved",
        version: str = "0",
        device: str = "cpu",
    ) -> None:
        """Takes the parts of a checkpoint; `load` reads them from disk.

        Args:
            facts: ``model.json``.
            tensors: Checked tensors by name, on the CPU.
            name: Name of the checkpoint.
            version: Its version.
            device: ``cpu``, ``cuda`` or ``cuda:1``.

        Raises:
            CheckpointError: ``facts`` are malformed.
        """
        self.name, self.version, self.facts = name, version, facts
        self.device = torch.device(device)
        self.architecture, self.likelihood, self._tensor_shapes = _layout(facts)
        self.schema = Schema.from_json(facts.get("schema"))
        self.encoder = Encoder.from_json(facts.get("encoding"), self.schema)
        if self.encoder.width != self.architecture.inputs:
            raise CheckpointError(
                f"architecture.inputs is {self.architecture.inputs}, "
                f"but the schema encodes to {self.encoder.width} columns"
            )
        try:
            self.location = float(facts["target"]["location"])
            self.scale = float(facts["target"]["scale"])
            self.seed = int(facts["default_seed"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"model.json: target or default_seed is malformed: {error!r}") from error
        if not (np.isfinite(self.location) and np.isfinite(self.scale) and self.scale > 0.0):
            raise CheckpointError(
                "model.json: target.location and target.scale must be finite, the scale positive"
            )
        self.transform = transform_from_json(facts["target"].get("transform"))
        calibration = facts.get("calibration")
        self.calibration = None if calibration is None else ConformalMap.from_json(calibration)
        self._reach = _reach(facts, self.encoder, self.device)
        self._tensors = dict(tensors)
        if "noise.rho" in self._tensors:
            self.likelihood.load_state_dict({"rho": self._tensors["noise.rho"]})
        self.likelihood.requires_grad_(requires_grad=False).to(self.device)
        self._mean_network = mean_network(self._tensors, self.architecture, self.device)
        self._kept: OrderedDict[int, Draws] = OrderedDict()

    @classmethod
    def load(cls, directory: Path, device: str = "cpu") -> Self:
        """Reads a version from disk and checks all of it.

        Args:
            directory: ``NAME/VERSION``; the names of the two directories are the posterior's.
            device: Where to compute.

        Raises:
            CheckpointError: Something is missing, damaged or of a newer format; the message says what.
        """
        facts = read_facts(directory)
        try:
            _, _, shapes = _layout(facts)
            tensors = read_tensors(directory, facts, shapes)
            where = directory.resolve()
            return cls(facts, tensors, name=where.parent.name, version=where.name, device=device)
        except CheckpointError as error:
            if str(directory) in str(error):
                raise
            raise CheckpointError(f"{directory / 'model.json'}: {error}") from error

    def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
        """Answers for any number of rows.

        Args:
            columns: Canonical columns of the schema's features, ``[B]`` each.
            options: What to answer, already validated.

        Returns:
            One entry a row, in order.
        """
        return self.predict_encoded(self.encoder.encode(columns), options)

    @torch.inference_mode()
    def predict_encoded(self, rows: NDArray[np.float32], options: PredictOptions) -> Prediction:
        """Like `predict`, for rows that are encoded already, ``[B, D]``."""
        seed = self.seed if options.seed is None else options.seed
        per_tile = max(1, TILE_VALUES // max(1, options.samples))
        tiles = [
            self._predict_tile(
                torch.from_numpy(rows[start : start + per_tile]).to(self.device), options, seed
            )
            for start in range(0, max(len(rows), 1), per_tile)
        ]
        joined = {key: np.concatenate([tile[key].cpu().numpy() for tile in tiles]) for key in tiles[0]}
        calibrated = options.samples > 0 and self._calibration_for(options) is not None
        errors = {
            field.name: joined.pop(f"error_of_{field.name}")
            for field in fields(MonteCarloError)
            if f"error_of_{field.name}" in joined
        }
        return Prediction(
            samples=options.samples,
            seed=seed,
            calibrated=calibrated,
            mc_error=MonteCarloError(**errors) if errors else None,
            **joined,
        )

    def predictive(
        self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None
    ) -> Predictive:
        """The distribution of the target of each row, not calibrated.

        Args:
            rows: Encoded rows, ``[B, D]``, on the posterior's device.
            samples: S, at least 1.
            seed: Seed of the draws.
            members: Takes all S draws from these alone; by default they go round all of them.
        """
        if members is None:
            draws = self._draws(samples, seed)
        else:
            rounds = -(-samples // len(members))
            draws = self._draws(rounds * self.architecture.members, seed).of_members(members).first(samples)
        return self._observe(draws, rows)

    def outside(self, rows: Tensor) -> Tensor:
        """Which rows lie beyond the training range of a feature, or are of a category unseen in training, ``[B]``.

        There calibration widens bands and never narrows them. Of checkpoints from before this was heeded, no row.

        Args:
            rows: Encoded rows, ``[B, D]``, on the posterior's device.
        """
        if self._reach is None:
            return torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        return ((rows < self._reach[0]) | (rows > self._reach[1])).any(dim=1)

    def _observe(self, draws: Draws, rows: Tensor) -> Predictive:
        outputs = forward(draws, rows)
        outside = self.outside(rows)
        if self._reach is not None and bool(outside.any()):
            # What is not known out there is told by the draws: the noise stays what it is at the edge.
            edge = forward(draws, rows[outside].clamp(*self._reach))
            outputs = outputs.clone()  # no longer one of inference mode
            outputs[:, outside] = self.likelihood.with_scatter_of(outputs[:, outside], edge)
        means, noise, weights = self.likelihood.components(outputs, draws.members)
        return Predictive.of(
            means.double() * self.scale + self.location,
            noise.double() * self.scale,
            None if weights is None else weights.double(),
            self.transform,
        )

    def warm_up(self) -> None:
        """Makes the default draws and runs every path once, so that the first request is as fast as the next."""
        for batch in (1, 64):
            rows = np.zeros((batch, self.architecture.inputs), dtype=np.float32)
            for options in (
                PredictOptions(),
                PredictOptions(samples=0),
                PredictOptions(noise=False, thresholds=(0.0,)),
            ):
                self.predict_encoded(rows, options)

    def _predict_tile(self, rows: Tensor, options: PredictOptions, seed: int) -> dict[str, Tensor]:
        if options.samples == 0:
            answer = {"mean": self._observe(self._mean_network, rows).means.mean(dim=0)}
            if options.draws:
                answer["draws"] = answer["mean"].new_empty((len(rows), 0))
            return answer
        predictive, outside = self.predictive(rows, options.samples, seed), self.outside(rows)
        mean, epistemic, aleatoric = predictive.split()
        answer = {
            "mean": mean,
            "epistemic_std": epistemic,
            "aleatoric_std": aleatoric,
            "std": (epistemic.square() + aleatoric.square()).sqrt() if options.noise else epistemic,
            "percentiles": self._percentiles(predictive, outside, options),
        }
        if options.thresholds:
            thresholds = torch.tensor(options.thresholds, dtype=torch.float64, device=self.device)
            if options.noise:
                calibration = self._calibration_for(options)
                recalibrate = (
                    None if calibration is None else partial(calibration.nominal_of, widening=outside)
                )
                answer["exceedance"] = predictive.exceedance(thresholds, recalibrate)
            else:
                answer["exceedance"] = function_exceedance(predictive.means, thresholds)
        if options.draws:
            answer["draws"] = predictive.means.T
        if options.mc_error:
            other_side = mirrored(self._draws(options.samples, seed), self._mean_network)
            errors = monte_carlo_error(
                predictive,
                self._observe(other_side, rows),
                answer["percentiles"],
                members=self.architecture.members,
                noise=options.noise,
            )
            answer |= {
                f"error_of_{field.name}": error
                for field, error in zip(fields(MonteCarloError), errors, strict=True)
            }
        return answer

    def _percentiles(self, predictive: Predictive, outside: Tensor, options: PredictOptions) -> Tensor:
        levels = torch.tensor(options.percentiles, dtype=torch.float64, device=self.device) / 100.0
        if not options.noise:
            return function_quantiles(predictive.means, levels)
        scores = torch.special.ndtri(levels)
        calibration = self._calibration_for(options)
        if calibration is None:
            return predictive.quantiles(scores)
        percentiles = predictive.quantiles(calibration.calibrated(scores))
        if bool(outside.any()):
            widened = calibration.calibrated(scores, widening=True)
            percentiles[outside] = predictive.of_rows(outside).quantiles(widened)
        return percentiles

    def _calibration_for(self, options: PredictOptions) -> ConformalMap | None:
        return self.calibration if options.noise and options.calibrated else None

    def _draws(self, samples: int, seed: int) -> Draws:
        kept = self._kept.get(seed)
        if kept is None or len(kept) < samples:
            kept = make_draws(
                self._tensors, self.architecture, seed=seed, samples=samples, device=self.device
            )
            self._kept[seed] = kept
        self._kept.move_to_end(seed)
        while len(self._kept) > 1 and (len(self._kept) > KEPT_SEEDS or self._kept_bytes() > KEPT_BYTES):
            self._kept.popitem(last=False)
        return kept.first(samples)

    def _kept_bytes(self) -> int:
        return sum(draws.nbytes for draws in self._kept.values())


def _layout(facts: Mapping[str, Any]) -> tuple[Architecture, Any, dict[str, tuple[int, ...]]]:
    """Architecture, observation model and expected tensors, from ``model.json``."""
    try:
        described = facts["architecture"]
        architecture = Architecture(
            inputs=_whole(described["inputs"]),
            hidden=tuple(_whole(width) for width in described["hidden"]),
            outputs=_whole(described["outputs"]),
            activation=described["activation"],
            members=_whole(described["members"]),
            skip=described["skip"] is True,
        )
        likelihood = make_likelihood(
            facts["likelihood"]["kind"],
            members=architecture.members,
            sigma=facts["likelihood"].get("sigma"),
            components=facts["likelihood"].get("components"),
        )
    except (KeyError, TypeError, ValueError, OptionError) as error:
        raise CheckpointError(f"architecture or likelihood is malformed: {error}") from error
    if likelihood.outputs != architecture.outputs:
        raise CheckpointError(
            f"architecture.outputs is {architecture.outputs}, but {likelihood.kind} noise takes {likelihood.outputs}"
        )
    shapes = architecture.shapes()
    shapes |= {f"noise.{name}": tuple(parameter.shape) for name, parameter in likelihood.named_parameters()}
    return architecture, likelihood, shapes


def _reach(facts: Mapping[str, Any], encoder: Encoder, device: torch.device) -> Tensor | None:
    """Least and largest encoded values over the training rows, ``[2, D]``; None: they are of no account."""
    beyond = facts.get("beyond")
    if beyond is None:
        return None
    if not (isinstance(beyond, dict) and beyond.get("rule") == BEYOND):
        raise CheckpointError(f"model.json: beyond.rule must be {BEYOND!r}, found {beyond!r}")
    return torch.from_numpy(encoder.reach).to(device)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value
