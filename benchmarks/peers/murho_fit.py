"""Murho in the step benchmark: the steps of `model.bbb.fit.fit`, with everything besides the gradient.

A fit is timed from the end of its first epoch to the end of its last one. That includes shuffling and gathering the
minibatches, clipping gradients, schedule, optimiser and the running average of the parameters. It also includes a
validation on one row every 50 steps, which takes negligible time. Runs in Murho's own environment.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.peers.exchange import drive
from benchmarks.peers.networks import DRAWS, LEARNING_RATE, NOISE, PRIOR_SIGMA, StepTask, step_session
from murho.model.bbb.fit import Epoch, Fit, fit
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.number_likelihoods import FixedNoise
from murho.model.bbb.priors import GaussianPrior
from murho.model.bbb.schedule import FitOptions

if TYPE_CHECKING:
    from murho.model.arrays import Floats


EPOCHS = 1_000_000
"""More epochs than any turn has; the learning rate falls over all of them, so it hardly changes in a turn."""


class Murho:
    """Murho as a system of the step benchmark; each turn is a fit from the start."""

    def __init__(self, task: StepTask) -> None:
        torch.set_num_threads(1)
        rows, targets = (torch.from_numpy(part) for part in task.data())
        # Several members are the folds of a cross-fit, as in `murho train`: each is trained on its own rows.
        folds = (torch.arange(task.rows) % task.members).unsqueeze(0) if task.members > 1 else None
        self._training, self._validation = Rows(rows, targets, folds), Rows(rows[:1], targets[:1])
        self._architecture = Architecture(rows.shape[1], task.hidden, 1, members=task.members)
        self._options = FitOptions(
            learning_rate=LEARNING_RATE, batch_size=task.batch, epochs=EPOCHS, patience=None, seed=task.seed
        )
        seen = self._training.seen_by(task.members).longest
        self._minibatches = -(-seen // task.batch)
        self._fit: Fit | None = None

    def take(self, *, steps: int | None = None, seconds: float | None = None) -> dict[str, float]:
        """Take steps, as `benchmarks.peers.networks.System.take` does, but in whole epochs."""
        ends: list[float] = []

        def epoch(_: Epoch) -> None:
            ends.append(time.perf_counter())
            counted, wall = len(ends) - 1, ends[-1] - ends[0]
            if counted and (counted * self._minibatches >= steps if steps else wall >= (seconds or 0.0)):
                raise KeyboardInterrupt

        progress: Any = SimpleNamespace(epoch=epoch)
        network = BayesianNetwork(self._architecture, torch.Generator().manual_seed(self._options.seed))
        prior, noise = GaussianPrior(PRIOR_SIGMA), FixedNoise(NOISE)
        self._fit = fit(network, noise, prior, self._training, self._validation, self._options, progress=progress)
        return {"steps": (len(ends) - 1) * self._minibatches, "wall": ends[-1] - ends[0]}

    def predict(self, rows: Floats) -> Floats:
        """Mean of the function values of `DRAWS` draws, ``[B]``."""
        if self._fit is None:
            raise AssertionError("it has taken steps")
        network, inputs, generator = (
            self._fit.network,
            torch.from_numpy(rows),
            torch.Generator().manual_seed(0),
        )
        with torch.no_grad():  # draw by draw, as in the peers, so that it does not set the peak of memory
            draws = [network(inputs, generator)[..., 0].mean(dim=0) for _ in range(DRAWS)]
        mean: Floats = torch.stack(draws).mean(dim=0).numpy()
        return mean


if __name__ == "__main__":
    drive(step=step_session(Murho))
