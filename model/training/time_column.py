"""What ``--time`` asks of a training: whether its column is a feature, and a last fit to the newest rows.

Whether the column is a feature is judged on later rows. A network that reads the time learns level and trend of each
past stretch. If the noise is correlated from row to row it learns its path by heart, and goes on from its end in a
straight line: worse than not knowing the time. If there is a trend or a season, the time is worth much. So two trial
fits, with and without the column, are judged forward in time.

A member that judges a block in time has not learned from that block, nor from any row after it. The members that serve
should know the newest rows. So, after the choice and the calibration, every member goes on from its kept parameters,
for few steps and at the chosen temperature, on as many of the newest rows as it saw of the oldest when it was judged
(`model.tables.splits.Split.newest`). No row is left to say when to stop.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from murho.model.bbb.fit import Fit, fit
from murho.model.bbb.fit_rows import Rows
from murho.model.errors import FitError
from murho.model.seeds import seed_for
from murho.model.tables.schema import Schema
from murho.model.training.candidate_fits import fit_options, minibatches_of
from murho.model.training.candidates import Candidate
from murho.model.training.context import Training
from murho.model.training.search import trial


def choose_time_feature(training: Training) -> Training:
    """Leave the column of ``--time`` out of the features if later rows are then predicted better.

    Args:
        training: A training of rows that are split forward in time, or not.

    Returns:
        ``training``, or the same without the column. It is ``training`` where nothing can be compared: without
        ``--time``, if the column is no feature or the only one, or if no row is judged forward.
    """
    time, say, schema = training.options.time, training.reporter.say, training.schema
    others = tuple(feature for feature in schema.features if feature.name != time)
    if not others or len(others) == len(schema.features) or training.split.validation is training.split.training:
        return training
    reason = "later rows are predicted better without it"
    schema = Schema(others, schema.target, {**schema.left_out, str(time): reason})
    columns = {name: column for name, column in training.columns.items() if name != time}
    without = replace(training, schema=schema, columns=columns)
    losses = []
    try:
        for title, tried in ((f"with {time!r}", training), (f"without {time!r}", without)):
            say(f"a trial {title} as a feature, judged on later rows:")
            losses.append(trial(tried).loss)
    except FitError:
        return training
    if losses[1] >= losses[0]:
        return training
    say(f"left out column {time!r}: {reason}")
    return without


STEPS = 500
LEARNING_RATE = 0.1
"""First learning rate, as a share of the usual one: weights move to what the newest rows add, and not anywhere else."""
SHOWN = 256


def fit_to_newest_rows(training: Training, candidate: Candidate, kept: Fit) -> Fit:
    """Continue a fit on the newest rows, without early stopping.

    Args:
        training: The training.
        candidate: The choices of the search.
        kept: The fit whose members were judged; it is not changed.

    Returns:
        The continued fit, or ``kept`` if the continued one became non-finite.
    """
    options, reporter = training.options, training.reporter
    rows = training.newest_rows(candidate.inputs, candidate.transform)
    minibatches = minibatches_of(options, len(rows))
    title = "on the newest rows"
    network, likelihood = copy.deepcopy((kept.network, kept.likelihood))
    reporter.begin(title)
    try:
        return fit(
            network,
            likelihood,
            options.make_prior(),
            rows,
            Rows(rows.features[-SHOWN:], rows.targets[-SHOWN:]),  # progress to look at: it decides nothing
            fit_options(
                options,
                len(rows),
                rate=LEARNING_RATE,
                epochs=min(options.epochs or STEPS, max(1, round(STEPS / minibatches))),
                patience=None,
                warm_up_steps=0,
                temperature=kept.temperature,
                seed=seed_for(options.seed, "newest rows"),
            ),
            device=torch.device(training.device),
            progress=reporter,
        )
    except FitError as error:
        reporter.say(f"{title}: passed over: {error}")
        return kept
    finally:
        reporter.end()
