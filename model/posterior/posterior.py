"""A loaded checkpoint that answers requests: rows in, the predictive distribution of the target out.

The answer for a row depends on the checkpoint, the row and the options alone. Rows are computed in tiles, which
limits memory and does not change answers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.encoding.imputation import rows_to_impute
from murho.model.encoding.input_warnings import input_warnings
from murho.model.encoding.training_range import Outside, TrainingRange
from murho.model.engines.draw_cache import KEPT_BYTES, DrawCache
from murho.model.engines.monte_carlo_error import MonteCarloError, monte_carlo_error
from murho.model.engines.prediction import Prediction, PredictOptions
from murho.model.engines.prediction_plan import PredictionPlan
from murho.model.engines.selection import select_engine
from murho.model.engines.target_model import TargetModel
from murho.model.engines.torch_engine import TorchEngine
from murho.model.networks.named_tensors import load_noise_tensors
from murho.model.posterior.checkpoint import name_and_version, read_stored
from murho.model.posterior.drawn_rows import DrawnRows
from murho.model.posterior.imputed_rows import copies_of_draws, in_pieces, mostly_imputed, with_rows_in_place
from murho.model.runtime.threads import threads_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.data.schema import Columns, UnfamiliarValue
    from murho.model.distributions.predictive import Predictive
    from murho.model.engines.draws import Draws
    from murho.model.engines.engine import Engine
    from murho.model.posterior.model_spec import ModelSpec

__all__ = ["Posterior"]

TILE_VALUES = 2**19
"""Outputs in a tile: 4 MiB of float64, and a few temporaries of the same size."""
TILE_ROWS = 256
"""Least number of rows in a tile where the draws leave room for them: matrix products of fewer rows are slow."""


class Posterior:
    """The variational posterior of a checkpoint, on one device.

    Not thread-safe: only one thread may compute, as in the service.

    Attributes:
        engine: Computes the answers; picked once.
        tile_values: Outputs in a tile. Answers do not depend on it.
    """

    def __init__(
        self,
        spec: ModelSpec,
        tensors: Mapping[str, Tensor],
        *,
        name: str = "unsaved",
        version: str = "0",
        device: str = "cpu",
        draws_bytes: int = KEPT_BYTES,
        engine: str = "auto",
    ) -> None:
        """Build the posterior from the parts of a checkpoint; `load` reads them from disk.

        Args:
            spec: The specification of the checkpoint.
            tensors: Checked tensors by name, on the CPU.
            name: Name of the checkpoint.
            version: Its version.
            device: ``cpu``, ``cuda`` or ``cuda:1``.
            draws_bytes: Memory for the cache of draws, `model.engines.draw_cache`.
            engine: One of `model.engines.selection.ENGINES`.
        """
        self.name, self.version, self.spec = name, version, spec
        self.tile_values = TILE_VALUES
        self.device = torch.device(device)
        self.architecture, self.schema, self.encoder = spec.architecture, spec.schema, spec.encoder
        self.transform, self.location, self.scale = (
            spec.target.transform,
            spec.target.location,
            spec.target.scale,
        )
        self.seed, self.calibration = spec.default_seed, spec.calibration
        self._reach = TrainingRange.of(spec.encoder, spec.beyond, self.device)
        self._limits = None if spec.beyond is None else spec.beyond.limits(spec.target.forward)
        self._tensors = dict(tensors)
        shapes = spec.architecture.shapes()
        self._weights = sum(math.prod(shape[1:]) for name, shape in shapes.items() if name.endswith(".mu"))
        self.likelihood = spec.likelihood.make(spec.architecture.members)
        load_noise_tensors(self.likelihood, self._tensors)
        self.likelihood.requires_grad_(requires_grad=False).to(self.device)
        self._target = TargetModel(
            self.likelihood,
            self.location,
            self.scale,
            self.transform,
            spec.likelihood.wide,
            self.architecture.members,
            spec.target.limits,
        )
        self._reference = TorchEngine(self._target)
        self.engine = select_engine(self._target, self.device, engine)
        self._draws = DrawCache(self._tensors, self.architecture, self.device, most_bytes=draws_bytes)

    @classmethod
    def load(cls, directory: Path, device: str = "cpu", *, draws_bytes: int = KEPT_BYTES, engine: str = "auto") -> Self:
        """Read a version from disk and check all of it.

        Args:
            directory: ``NAME/VERSION``, which give the posterior its name and version.
            device: The device to compute on: ``cpu``, ``cuda`` or ``cuda:1``.
            draws_bytes: Memory for the cache of draws, `model.engines.draw_cache`.
            engine: One of `model.engines.selection.ENGINES`.

        Raises:
            CheckpointError: Something is missing, damaged or of a newer format, or the answers are not those that the
                writer got; the message names it.
        """
        stored = read_stored(directory)
        name, version = name_and_version(directory)
        loaded = cls(
            stored.spec,
            stored.tensors,
            name=name,
            version=version,
            device=device,
            draws_bytes=draws_bytes,
            engine=engine,
        )
        stored.require_answers(loaded)
        return loaded

    @property
    def facts(self) -> dict[str, Any]:
        """The specification as JSON: schema, training, metrics of held-out rows and more."""
        return self.spec.to_json()

    def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
        """Answer for any number of rows.

        Args:
            columns: Canonical columns of the schema's features, ``[B]`` each.
            options: Options of the request, already validated.

        Returns:
            One entry per row, in order.
        """
        incomplete = rows_to_impute(self.schema, columns)
        if not len(incomplete):
            return self.predict_encoded(self.encoder.encode(columns), options)
        parts = []
        for rows, part, imputed in in_pieces(columns, incomplete, self.encoder.width):
            encoded = self.encoder.encode_copies(part) if imputed else self.encoder.encode(part)
            parts.append((rows, self.predict_encoded(encoded, options)))
        return with_rows_in_place(parts)

    @torch.inference_mode()
    def predict_encoded(self, rows: NDArray[np.float32], options: PredictOptions) -> Prediction:
        """Answer as `predict` does, for encoded rows ``[B, D]``, or for R imputed copies of each, ``[R, B, D]``."""
        with threads_for(rows.shape[-2] * max(1, options.samples) * self._weights):
            return self._predict_encoded(rows, options)

    def _predict_encoded(self, rows: NDArray[np.float32], options: PredictOptions) -> Prediction:
        seed = self.seed if options.seed is None else options.seed
        plan = PredictionPlan.of(options, self.calibration, self.device)
        engine = self.engine if options.samples else self._reference  # the mu-only mean is PyTorch's, to the bit
        samples, with_errors = options.samples, options.mc_error and options.samples > 0
        per_tile = self._rows_per_tile(samples)
        calibrated = plan.calibration is not None
        answers, errors = [], []
        for start in range(0, max(rows.shape[-2], 1), per_tile):
            tile = torch.from_numpy(rows[..., start : start + per_tile, :]).to(self.device)
            beyond = self._reach.outside(tile)
            outside = Outside.of(self._reach.unlike(tile, beyond))
            draws = self._draws.parts(samples, seed) if samples else [self._draws.means]
            outputs, members = self._outputs(engine, draws, tile, beyond, every_copy=not samples)
            widening = self._widening(outside, tile, outputs, members) if plan.calibration is not None else outside
            answer = engine.answer(plan, outputs, members, widening)
            if with_errors:
                images = self._outputs(engine, self._draws.image_parts(samples, seed), tile, beyond)
                drawn, mirrored = (self._target.predictive(*part) for part in ((outputs, members), images))
                errors.append(self._errors(drawn, mirrored, answer, noise=options.noise, calibrated=calibrated))
            answers.append({**answer, "outside": outside.mask.cpu().numpy()})
        return Prediction(
            samples=options.samples,
            seed=seed,
            calibrated=calibrated,
            mc_error=MonteCarloError(**_joined(errors)) if errors else None,
            **_joined(answers),
        )

    def drawn(self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        """Rows under draws, for evaluation and calibration.

        Args:
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``, on the posterior's device.
            samples: S, at least 1.
            seed: Seed of the draws.
            members: The members to take all S draws from; by default draws go round all members.
        """
        if members is None:
            parts = self._draws.parts(samples, seed)
        else:
            rounds = -(-samples // len(members))
            draws = self._draws.first(rounds * self.architecture.members, seed)
            parts = iter((draws.of_members(members).first(samples),))
        beyond = self._reach.outside(rows)
        outside = Outside.of(self._reach.unlike(rows, beyond))
        outputs, of_members = self._outputs(self._reference, parts, rows, beyond)
        widening = self._widening(outside, rows, outputs, of_members)
        return DrawnRows(outputs, of_members, widening, self._target, self.engine)

    def predictive(self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> Predictive:
        """The raw predictive distribution of the target of each row; takes the arguments of `drawn`."""
        return self.drawn(rows, samples, seed, members=members).predictive()

    def outside(self, rows: Tensor) -> Tensor:
        """Mask of the rows that are unlike the training rows or have a category unseen in training, ``[B]``.

        In these rows calibration never narrows a band. In older checkpoints, which have no distance of rows, they are
        the rows beyond the training range of a feature; still older ones have no rule for this: no row is marked.

        Args:
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``, on the posterior's device.
        """
        return self._reach.unlike(rows, self._reach.outside(rows))

    def input_warnings(
        self, columns: Columns, limit: int | None = None, *, among: NDArray[np.bool_] | None = None
    ) -> list[UnfamiliarValue]:
        """Warnings of values unlike the training rows, see `model.encoding.input_warnings.input_warnings`."""
        return input_warnings(self.encoder, columns, limit, among=among)

    def warm_up(self) -> None:
        """Make the default draws and run every path once, so that the first request is as fast as later ones."""
        for batch in (1, 64):
            rows = np.zeros((batch, self.architecture.inputs), dtype=np.float32)
            for options in (
                PredictOptions(),
                PredictOptions(samples=0),
                PredictOptions(noise=False, thresholds=(0.0,)),
            ):
                self.predict_encoded(rows, options)

    def _rows_per_tile(self, samples: int) -> int:
        most = max(1, self.tile_values // max(1, samples))
        if not self._draws.holds(samples):  # draws are made again for every tile
            return most
        return max(min(most, TILE_ROWS), most // self.architecture.outputs)

    def _widening(self, outside: Outside, rows: Tensor, outputs: Tensor, members: Tensor) -> Outside:
        """The rows in which calibration may only widen bands: those outside, and those of mostly imputed spread."""
        if rows.dim() == 2:
            return outside
        imputed = mostly_imputed(self._target.predictive(outputs, members), len(rows))
        return Outside.of(outside.mask | imputed)

    def _outputs(
        self, engine: Engine, parts: Iterable[Draws], rows: Tensor, beyond: Tensor, *, every_copy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Outputs of every row under the draws of all parts, and the member of each draw, ``[S]``.

        Args:
            engine: Computes the outputs.
            parts: Consecutive draws.
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``.
            beyond: Whether they lie outside the training range, ``[B]`` or ``[R, B]``.
            every_copy: Whether each draw uses all copies of a row, and counts as R draws; otherwise draw k uses copy
                ``k mod R``.

        Returns:
            ``[S, B, P]`` and ``[S]``.
        """
        if rows.dim() == 2:
            outside = Outside.of(beyond)
            outputs, members = zip(
                *((self._outputs_of(engine, draws, rows, outside), draws.members) for draws in parts), strict=True
            )
            return _together(outputs), _together(members)
        where = [Outside.of(of_copy) for of_copy in beyond]

        def of_copy(draws: Draws, copy: int) -> Tensor:
            return self._outputs_of(engine, draws, rows[copy], where[copy])

        return copies_of_draws(parts, len(rows), of_copy, every_copy=every_copy)

    def _outputs_of(self, engine: Engine, draws: Draws, rows: Tensor, outside: Outside) -> Tensor:
        """Outputs of every row under every draw, ``[S, B, P]``, with the edge's noise beyond the training rows.

        Beyond the training range the noise is the one at its nearest edge; the draws carry the further uncertainty.
        Function values stay within the limits of the checkpoint's rule (`BeyondRule.limits`).
        """
        outputs = engine.forward(draws, rows)
        if len(outside) == 0:
            return outputs
        beyond, means = outside.rows, self.likelihood.means
        noise_varies = self.likelihood.outputs > means  # else it is the same for all rows
        edge = engine.forward(draws, self._reach.nearest(rows[beyond])) if noise_varies else None
        with torch.inference_mode():  # as in `forward`, whose outputs are changed in place
            far = outputs[:, beyond]
            if edge is not None:
                far = self.likelihood.with_scatter_of(far, edge)
            if self._limits is not None:
                far[..., :means] = far[..., :means].clamp(*self._limits)
            outputs[:, beyond] = far
        return outputs

    def _errors(
        self,
        drawn: Predictive,
        mirrored: Predictive,
        answer: Mapping[str, NDArray[Any]],
        *,
        noise: bool,
        calibrated: bool,
    ) -> dict[str, NDArray[Any]]:
        """Monte Carlo standard errors of a tile's answer, by the names of `MonteCarloError`."""
        errors = monte_carlo_error(
            drawn,
            mirrored,
            torch.from_numpy(answer["percentiles"]).to(self.device),
            members=self.architecture.members,
            noise=noise,
            calibrated_std=torch.from_numpy(answer["std"]).to(self.device) if calibrated else None,
        )
        return dict(zip(("mean", "std", "percentiles"), (part.cpu().numpy() for part in errors), strict=True))


def _together(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


def _joined(tiles: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Join the rows of all tiles."""
    if len(tiles) == 1:
        return tiles[0]
    return {key: np.concatenate([tile[key] for tile in tiles]) for key in tiles[0]}
