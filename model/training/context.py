"""What all steps of a training share: the rows that can be learned from, how they are split, options and progress.

What the user should know about the rows is said on the way: which are left out, and how the others are held out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from murho.model.arrays import Doubles
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.line import fit_line
from murho.model.bbb.registry import LIKELIHOODS
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec
from murho.model.distributions.mixtures import WideRule
from murho.model.distributions.target_transforms import TRANSFORMS, Identity, Limits, Standardisation
from murho.model.encoding.distribution_fit import FEWEST_ROWS, fit_feature_distribution
from murho.model.encoding.encoder import MIXED, PIECEWISE, Encoded, Encoder, InputChoice
from murho.model.encoding.feature_distribution import FeatureDistribution
from murho.model.errors import OptionError, TableError, format_count
from murho.model.tables.columns import canonical_column, rows_of
from murho.model.tables.inference import infer_column
from murho.model.tables.readings import ReadingHints
from murho.model.tables.schema import FEWEST_OF_A_CATEGORY, MOST_CATEGORIES, Columns, FeatureKind, Schema, select_rows
from murho.model.tables.schema_inference import make_schema, require_column
from murho.model.tables.splits import MOST_HELD_OUT, ROW_ORDER, Split, find_units, folds_of, split_in_time, split_rows
from murho.model.training.candidates import Reporter, has_few_rows
from murho.model.training.options import TrainOptions
from murho.model.training.order_check import check_order
from murho.model.training.prepared_table import PreparedTable, held_out_within_budget
from murho.model.training.tasks import require_noise_for, target_limits


def split_table(prepared: PreparedTable, reporter: Reporter, device: str = "cpu") -> Training:
    """Split the rows that have a target and a weight, and describe their features.

    Args:
        prepared: The table.
        reporter: Gets a line for each thing that the user should know.
        device: Device of the fits.

    Raises:
        TableError: The table can't be used; file, column and row are named.
    """
    options, target, say = prepared.options, prepared.plan.schema.target.name, reporter.say
    limits = None
    if prepared.plan.schema.target.classes is None:
        limits = target_limits(prepared.targets, target, options, say)
        require_noise_for(options, prepared.targets, target, limits)
    every = len(prepared.targets)
    rows = np.flatnonzero(~np.isnan(prepared.targets))
    if len(rows) < every:
        say(f"left out {every - len(rows)} of {every} rows: {target!r} is missing")
    weights = prepared.weights
    if weights is not None:
        weighty = rows[weights[rows] > 0.0]
        if len(weighty) < len(rows):
            say(f"left out {len(rows) - len(weighty)} of {every} rows: their weight {options.weight!r} is 0")
        rows = weighty
    columns = select_rows(prepared.columns, rows)
    table = rows_of(prepared.table, rows)
    split, notes = hold_out(table, target, columns, options, prepared.hints, held_out_within_budget(prepared))
    for note in (*notes, split.describe()):
        say(note)
    if options.time is None and not options.group:
        for note in check_order(table, prepared.plan.schema, columns, prepared.targets[rows], options.weight):
            say(note)
    impute = options.missing == "accept" and len(split.learned) >= FEWEST_ROWS
    learned = select_rows(columns, split.learned)
    fewest = 1 if options.rare == "name" else FEWEST_OF_A_CATEGORY
    ahead = {} if options.time is None else {options.time: split.ahead}
    schema = make_schema(prepared.plan.schema, learned, ahead, impute=impute, fewest=fewest)
    for feature in schema.features:
        if feature.kind is FeatureKind.CATEGORICAL and len(feature.categories) < MOST_CATEGORIES:
            rare = len({*learned[feature.name]} - {None, *feature.categories})
            if rare:
                few, are = ("1 category", "is") if rare == 1 else (f"{rare} categories", "are")
                say(f"column {feature.name!r}: {few} of fewer than {fewest} rows {are} read as unseen (--rare)")
        if len(feature.categories) == MOST_CATEGORIES:
            say(
                f"column {feature.name!r}: its {MOST_CATEGORIES} most frequent categories are told apart; rarer ones, "
                "if any, are one"
            )
    if weights is not None:
        weights = weights[rows] / weights[rows][split.learned].mean()
    numbers = (rows if prepared.rows is None else prepared.rows[rows]) + 1
    sampled = prepared.rows is not None
    return Training(
        schema,
        columns,
        prepared.targets[rows],
        split,
        options,
        reporter,
        device,
        began=prepared.began,
        kept_back=SHARE_TO_FINISH * options.budget if options.budget and sampled else 0.0,
        weights=weights,
        limits=limits,
        row_numbers=numbers,
        left_out=every - len(rows),
    )


SHARE_TO_FINISH = 0.2
"""Share of a budget by the clock that calibration and report take on a sample of the rows."""
FEW_GROUPS = 10
"""With fewer groups the 90 % band of a new group is more than the groups can tell."""


def hold_out(
    table: pa.Table,
    target: str,
    columns: Columns,
    options: TrainOptions,
    hints: ReadingHints,
    most_held_out: int = MOST_HELD_OUT,
) -> tuple[Split, list[str]]:
    """Split the rows of a table as the options say.

    Args:
        table: The rows with a target, N.
        target: The predicted column.
        columns: Canonical columns of the features, ``[N]`` each.
        options: Options of the training.
        hints: What decides where cells leave open how they are to be read.
        most_held_out: Most rows that judge and calibrate.

    Returns:
        The split, and what to tell the user, one line each.

    Raises:
        TableError: A column of an option is not in the table.
        OptionError: A column of an option is the target, or can't be used as the option says.
    """

    def column_of(name: str, option: str) -> pa.ChunkedArray:
        """Return an option's column."""
        require_column(table, name, f"the {option} column")
        if name == target:
            raise OptionError(f"{option} {name}: this is the target; give another column")
        return table.column(name)

    if options.time is None:
        groups = {
            name: canonical_column(column_of(name, "--group"), FeatureKind.CATEGORICAL, name, None, hints.missing(name))
            for name in options.group
        }
        units = find_units(columns, groups)
        split = split_rows(table.num_rows, options.seed, options.members, units, most_held_out=most_held_out)
        notes = list(units.notes)
        if units.grouped and units.count < FEW_GROUPS:
            notes.append(
                f"only {units.count} groups: bands above {100 * units.count // (units.count + 1)} % are more than so "
                "few can tell, and are drawn by the widths of those below"
            )
        return split, notes
    name = options.time
    if name == ROW_ORDER and name not in table.column_names:
        times = np.arange(table.num_rows, dtype=np.float64)
        return split_in_time(times, options.members, most_held_out=most_held_out), []
    column, given = column_of(name, "--time"), options.columns.get(name)
    found = infer_column(column, name, None if given is None else given.kind, hints)
    if found.kind not in (FeatureKind.NUMERIC, FeatureKind.DATE):
        raise OptionError(f"--time {name}: the column must have dates or numbers, not {found.kind} cells")
    times = canonical_column(column, found.kind, name, found.reading, hints.missing(name))
    split = split_in_time(times, options.members, most_held_out=most_held_out)
    missing = int(np.isnan(times).sum())
    return split, [
        f"column {name!r}: {format_count(missing, 'missing cell')}; such rows count as old"
    ] if missing else []


LEAST_LEFT = 1e-3
"""Least scale of a fit, as a share of the targets' standard deviation: single precision then still has four digits."""
LARGEST_SCALE = 1e140
"""Largest standard deviation of a target, and the inverse of the least: double precision has no squares beyond."""
A_LINE = 0.999
"""Correlation of targets with their transforms from which these are as good as the same."""


@dataclass
class Training:
    """What all steps of a training share, of its N rows with a target and a weight. Each encoding is computed once.

    Attributes:
        schema: Features and target.
        columns: Canonical columns of the features, ``[N]`` each.
        targets: ``[N]``, the target's unit, or class indices.
        split: Training, validation and calibration rows, and the folds of the members.
        options: Validated options.
        reporter: Gets the progress.
        device: Device of the fits.
        began: When the user began to wait, in monotonic seconds: ``--budget`` counts from there.
        kept_back: Seconds of ``--budget`` that are left for what follows the search.
        weights: Weight of each row, ``[N]``, of mean 1 over the training rows; None: all are 1.
        limits: Limits of the target; None: there are none.
        row_numbers: Number of each row in the user's table, from 1, ``[N]``.
        left_out: How many rows of the table are none of these.
    """

    schema: Schema
    columns: Columns
    targets: NDArray[np.float64]
    split: Split
    options: TrainOptions = field(default_factory=TrainOptions)
    reporter: Reporter = field(default_factory=Reporter)
    device: str = "cpu"
    began: float = field(default_factory=time.monotonic)
    kept_back: float = 0.0
    weights: NDArray[np.float64] | None = None
    limits: Limits | None = None
    row_numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    left_out: int = 0
    _scalings: dict[str, tuple[Standardisation, float]] = field(default_factory=dict, init=False)
    _encoders: dict[InputChoice, Encoder] = field(default_factory=dict, init=False)
    _encoded: dict[InputChoice, Encoded] = field(default_factory=dict, init=False)

    def encoder(self, inputs: InputChoice) -> Encoder:
        """Return the encoder of a choice of inputs, fitted to the training rows."""
        inputs = _of_encoder(inputs)
        if inputs not in self._encoders:
            self._encoders[inputs] = Encoder.fit(
                self.schema,
                self.learned_columns,
                encoding=inputs.encoding,
                whitened=inputs.whitened,
                distribution=self.distribution,
                unread=inputs.unread_by_all,
                textbook=self.options.textbook,
            )
        return self._encoders[inputs]

    @property
    def starts_at_line(self) -> bool:
        """Whether fits of numbers start at a line (`model.bbb.line`)."""
        return self.options.skip and not self.options.textbook

    @property
    def few(self) -> bool:
        """Whether the training rows are few, see `has_few_rows`."""
        # Of classes, 1,400 rows of 61 features had twice the log loss as few rows.
        features = len(self.schema.features) if self.schema.target.classes is None else 0
        return has_few_rows(len(self.split.training), features)

    @cached_property
    def learned_columns(self) -> Columns:
        """Canonical columns of the rows that are learned from."""
        return select_rows(self.columns, self.split.learned)

    @cached_property
    def distribution(self) -> FeatureDistribution | None:
        """The distribution of the features over the training rows; None for very few rows."""
        learned, units = self.split.learned, self.split.units
        folds = self.split.distant_folds()
        return fit_feature_distribution(
            self.schema,
            self.learned_columns,
            None if folds is None else folds[learned],
            units=None if units is None else units.of_rows[learned],
            forward=self.split.forward,
        )

    def encode(self, inputs: InputChoice) -> Encoded:
        """All rows as a choice of inputs."""
        inputs = _of_encoder(inputs)
        if inputs not in self._encoded:
            self._encoded[inputs] = self.encoder(inputs).encode(self.columns)
        return self._encoded[inputs]

    def unread(self, inputs: InputChoice, members: int) -> tuple[tuple[int, ...], ...]:
        """Return the inputs that each member does not read (`Architecture.unread`).

        All members read the inputs that are zero in training: their weights are the prior of what lies beyond.
        """
        encoder = self.encoder(inputs)
        unread = unread_bins(members, encoder.bins if inputs.encoding == MIXED else ())
        for own, names in zip(unread, inputs.unread, strict=False):
            for name in names:
                own.update(range(encoder.width)[encoder.columns_of[name]])
        found = tuple(tuple(sorted(own.difference(encoder.zero_in_training))) for own in unread)
        return found if any(found) else ()

    def bends(self, transform: str) -> bool:
        """Whether a transform has the training targets in its domain, and is not nearly a line through them."""
        targets = self._learned_targets
        fitted = TRANSFORMS[transform].fit(targets)
        if fitted is None:
            return False
        with np.errstate(all="ignore"):  # of constant and huge targets, which are refused later
            return bool(np.corrcoef(fitted.forward(targets).numpy(), targets.numpy())[0, 1] < A_LINE)

    def standardisation(self, transform: str) -> Standardisation:
        """Return a transform by name, with location and scale (weighted) of the transformed training targets.

        Where fits start at a line, the scale is what this leaves: then noise, prior and step size suit what is left to
        learn, and a target that is nearly a line is learned as exactly as another one.

        Raises:
            OptionError: The training targets lie outside of the transform's domain.
            TableError: The training targets are all the same.
        """
        return self._scaling(transform)[0]

    def spread(self, transform: str) -> float:
        """Return standard deviation of the transformed training targets, standardised; at least 1."""
        return self._scaling(transform)[1]

    def _scaling(self, transform: str) -> tuple[Standardisation, float]:
        if transform not in self._scalings:
            self._scalings[transform] = self._find_scaling(transform)
        return self._scalings[transform]

    def _find_scaling(self, transform: str) -> tuple[Standardisation, float]:
        if self.schema.target.classes is not None:  # networks learn the class indices as they are
            return Standardisation(Identity(), 0.0, 1.0), 1.0
        targets = self._learned_targets
        fitted = TRANSFORMS[transform].fit(targets)
        if fitted is None:
            raise OptionError(
                f"--transform {transform}: target {self.schema.target.name!r} has negative values "
                f"(the least is {float(targets.min()):g}); use --transform none"
            )
        values = fitted.forward(targets).numpy()
        weights = None if self.weights is None else self.weights[self.split.learned]
        location = float(np.average(values, weights=weights))
        target = self.schema.target.name
        with np.errstate(over="ignore", invalid="ignore"):
            furthest = float(np.abs(values - location).max())
            scale = furthest * math.sqrt(np.average(((values - location) / (furthest or 1.0)) ** 2, weights=weights))
        if not scale < LARGEST_SCALE:
            row = int(np.argmax(np.abs(self.targets)))
            raise TableError(
                f"target {target!r}, row {self.row_numbers[row]}: {self.targets[row]:g} is too large to compute with: "
                "correct the cell or leave it empty, or give the target in a larger unit"
            )
        if scale <= 0.0:
            raise TableError(
                f"target {target!r} has the same value in all {len(values)} training rows; nothing can be learned"
            )
        if scale < 1.0 / LARGEST_SCALE:
            raise TableError(
                f"target {target!r}: its numbers differ by {furthest:g} at most, too little to compute with: give it "
                f"in a smaller unit, such as times {1.0 / scale:.0e}"
            )
        left = self._line_residual((values - location) / scale, weights) if self.starts_at_line else 1.0
        return Standardisation(fitted, location, scale * left, self.limits), 1.0 / left

    def _line_residual(self, targets: Doubles, weights: Doubles | None) -> float:
        """Return the standard deviation that a line leaves of training targets of standard deviation 1."""
        inputs = torch.from_numpy(self.encode(InputChoice("standard")).inputs[self.split.learned]).double()
        line = fit_line(inputs, torch.from_numpy(targets), None if weights is None else torch.from_numpy(weights))
        return min(1.0, max(LEAST_LEFT, line.noise))

    def likelihood_spec(self, kind: str, transform: str) -> LikelihoodSpec:
        """Return the observation model of a fit, and of ``model.json``: with a wide component where it takes one.

        Args:
            kind: A kind of `model.bbb.registry.KINDS`; a classifier gets the class shares of its training rows.
            transform: Transform of the target.
        """
        learned, classes, options = self.split.learned, self.schema.target.classes, self.options
        weights = None if self.weights is None else self.weights[learned]
        sigma = options.noise_sigma if kind == "fixed" else None
        return LikelihoodSpec(
            kind,
            sigma=None if sigma is None else sigma / self.standardisation(transform).scale,
            components=options.noise_components if kind == "mixture" else None,
            wide=WideRule.after(len(learned), self.spread(transform)) if LIKELIHOODS[kind].wide_tails else None,
            shares=None if classes is None else ClassShares.of(self.targets[learned], len(classes), weights),
        )

    def rows(self, inputs: InputChoice, transform: str) -> tuple[Rows, Rows]:
        """Training and validation rows, encoded and standardised."""
        split = self.split
        training, validation = (
            self._rows(inputs, transform, numbers, None if split.folds is None else split.folds[:, numbers])
            for numbers in (split.training, split.validation)
        )
        return training, validation

    def newest_rows(self, inputs: InputChoice, transform: str) -> Rows:
        """Return the rows that the members which serve learn from after forward judging (`Split.newest`)."""
        return self._rows(inputs, transform, self.split.learned, self.split.newest())

    def _rows(
        self, inputs: InputChoice, transform: str, numbers: NDArray[np.int64], folds: NDArray[np.int64] | None
    ) -> Rows:
        targets = self.standardisation(transform).forward(torch.from_numpy(self.targets[numbers]))
        return Rows(
            torch.from_numpy(self.encode(inputs).inputs[numbers]),
            targets.float(),
            None if folds is None else torch.from_numpy(folds),
            self.split.forward,
            None if self.weights is None else torch.from_numpy(self.weights[numbers]).float(),
        )

    @property
    def _learned_targets(self) -> torch.Tensor:
        return torch.from_numpy(self.targets[self.split.learned])


def unread_bins(members: int, bins: Sequence[int]) -> list[set[int]]:
    """Return the inputs that each member of a mixed encoding does not read.

    Members of every second partition into folds read no bins, so that a row's judges are of both kinds. With one
    partition these are the members of odd numbers.

    Args:
        members: M.
        bins: Numbers of the inputs that are bins of a number.
    """
    folds = folds_of(members)
    together = folds if members > folds else 1
    return [set(bins if member // together % 2 else ()) for member in range(members)]


def _of_encoder(inputs: InputChoice) -> InputChoice:
    """Return what the encoder depends on: all members have the same."""
    encoding = PIECEWISE if inputs.encoding == MIXED else inputs.encoding
    return InputChoice(encoding, inputs.whitened, (inputs.unread_by_all,) if inputs.unread_by_all else ())
