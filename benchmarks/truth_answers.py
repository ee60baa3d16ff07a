"""The answers of `benchmarks.truth`, each beside the truth of a made-up table: what is promised and what is found.

A function of this module takes a `Case`, a fitted table and its rows under one condition, and returns what it has
measured by the name of the promise, such as ``90 %``. `ANSWERS` says for which cases each of them is made, and why not
for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.truth_tables import NUMBERS, Known, Rows
from murho.model.evaluation.counterfactual import Goal, counterfactuals
from murho.model.evaluation.why import answer_requests
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.interface import TrainedModel
from murho.model.tables.schema import select_rows
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import UpdateOptions
from murho.model.training.pruning import prune
from murho.model.training.revisions import labelled_rows
from murho.model.training.updating import update

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from murho.model.arrays import Bools, Doubles
    from murho.model.checkpoint.posterior import Posterior

BANDS = {"90 %": (5.0, 95.0), "50 %": (25.0, 75.0)}
LEVELS = (5.0, 25.0, 75.0, 95.0)
EXPLAINED, CHANGED, CONTEXTS = 60, 12, 200
SIZES = (10, 100, 1_000)
RISK = 0.1
QUARTER = float(np.log(1.25))
GOAL = 0.9


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of one fit, and what is promised of it.

    Attributes:
        found: A share; or, of a ratio, the mean square of the errors.
        promised: The share that it shall be; or, of a ratio, the mean square of the predicted spread.
        within: How far the mean over repeats may be off: a share, or for ratios the logarithm of a factor.
        side: ``both``, ``least`` (more is right, too) or ``most``.
        ratio: Whether the number is the root of ``promised / found``.
        count: Number of rows, totals or decisions behind it.
        said: Whether what is promised is the mean of what the answers say, and no constant.
    """

    found: float
    promised: float
    within: float = 0.04
    side: str = "both"
    ratio: bool = False
    count: int = 1
    said: bool = False


def _share(hits: ArrayLike, promised: ArrayLike = 0.9, within: float = 0.04, side: str = "both") -> Measure:
    found, promise = (float(np.mean(np.asarray(each, dtype=np.float64))) for each in (hits, promised))
    return Measure(found, promise, within, side, count=np.size(hits), said=np.ndim(promised) > 0)


def _spread(predicted: ArrayLike | None, errors: ArrayLike) -> Measure:
    """Root mean square of a predicted spread, as a share of that of errors: within a quarter."""
    square, promise = (float(np.mean(np.square(np.asarray(each, dtype=np.float64)))) for each in (errors, predicted))
    return Measure(square, promise, QUARTER, ratio=True, count=np.size(errors))


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A fitted table, and rows under one condition.

    Attributes:
        known: The table.
        posterior: The fit.
        condition: Name of the condition.
        rows: The rows.
    """

    known: Known
    posterior: Posterior
    condition: str
    rows: Rows

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Canonical columns of the rows, ``[B]`` each."""
        return dict(columns_from_table(self.rows.features(), self.posterior.schema))

    def answer(self, options: PredictOptions) -> Any:
        """Return the prediction for the rows."""
        return self.posterior.predict(self.columns, options)

    def some(self, count: int) -> Case:
        """Return the same with the first rows alone."""
        return replace(self, rows=self.rows.some(np.arange(min(count, len(self.rows)))))

    def moments(self) -> tuple[Doubles, Doubles]:
        """Return true means and standard deviations, ``[B]``, of the rows with all their cells."""
        return self.known.world.moments(self.rows.numbers, self.rows.category)

    def model(self) -> TrainedModel:
        """Return what Python callers have."""
        return TrainedModel(self.posterior)

    @property
    def far(self) -> bool:
        """Whether the rows lie beyond the training range."""
        return bool(np.abs(self.rows.numbers).max() > 1.0)

    @property
    def incomplete(self) -> bool:
        """Whether cells are missing."""
        return self.rows.hidden is not None


def rows_with_warnings(case: Case) -> Bools:
    """Which rows have answers that say that nothing is promised: `extrapolation`, or not `calibrated`; ``[B]``."""
    answer = case.answer(PredictOptions(percentiles=()))
    return np.asarray(answer.extrapolation | (not answer.calibrated))


def prediction(case: Case, *, calibrated: bool = True) -> dict[str, Measure]:
    """Outcomes in the bands of a new observation; `std` to the error of the mean."""
    answer = case.answer(PredictOptions(percentiles=LEVELS, calibrated=calibrated))
    ends, truth = dict(zip(LEVELS, answer.percentiles.T, strict=True)), case.rows.outcomes
    side = "least" if case.known.world.has_atoms else "both"  # the ends of a band may have a probability of their own
    found = {
        name: _share((ends[low] <= truth) & (truth <= ends[high]), (high - low) / 100.0, side=side)
        for name, (low, high) in BANDS.items()
    }
    return found | {"std / RMSE": _spread(answer.std, truth - answer.mean)}


def raw(case: Case) -> dict[str, Measure]:
    """Return the same without calibration."""
    return prediction(case, calibrated=False)


def function(case: Case) -> dict[str, Measure]:
    """Return true means in the bands of the function (``noise: false``); `epistemic_std` to the error of the mean."""
    answer = case.answer(PredictOptions(percentiles=(5.0, 95.0), noise=False))
    observed, (truth, _) = case.answer(PredictOptions(percentiles=())), case.moments()
    low, high = answer.percentiles.T
    return {
        "90 % of true means": _share((low <= truth) & (truth <= high)),
        "epistemic_std / error": _spread(observed.epistemic_std, truth - observed.mean),
    }


def noise(case: Case) -> dict[str, Measure]:
    """`aleatoric_std` to the true noise."""
    answer = case.answer(PredictOptions(percentiles=()))
    return {"aleatoric_std / noise": _spread(answer.aleatoric_std, case.moments()[1])}


def exceedance(case: Case) -> dict[str, Measure]:
    """How often outcomes exceed thresholds, where that is said to be likely and unlikely."""
    thresholds = tuple(np.quantile(case.known.training.outcomes, np.linspace(0.1, 0.9, 9)).tolist())
    said = case.answer(PredictOptions(percentiles=(), thresholds=thresholds)).exceedance
    truth = case.rows.outcomes[:, None] > np.array(thresholds)
    found = {}
    for name, (low, high) in {"2 to 30 %": (0.02, 0.3), "70 to 98 %": (0.7, 0.98)}.items():
        among = (said > low) & (said < high)
        if among.any():
            found[name] = _share(truth[among], said[among])
    return found


def _blocks(
    case: Case, statistic: str, size: int, order: NDArray[np.intp], weighted: bool = False
) -> dict[str, Measure]:
    """Totals of rows that follow each other in an order, beside the totals of their outcomes."""
    count = len(order) // size
    if count < 1:
        return {}
    rows, groups = case.rows.some(order[: count * size]), np.arange(count).repeat(size)
    amounts = np.linspace(0.5, 1.5, len(groups)) if weighted else np.ones(len(groups))
    table = rows.features().append_column("block", [groups]).append_column("amount", [amounts])
    middle = float(np.median(case.known.training.outcomes))
    answer: Any = case.model().aggregate(
        table,
        by="block",
        statistic=statistic,
        threshold=middle if statistic == "count_above" else None,
        weights="amount" if weighted else None,
        percentiles=(5.0, 95.0),
    )
    values = rows.outcomes > middle if statistic == "count_above" else rows.outcomes
    truth = np.bincount(groups, values * amounts) / (size if statistic == "mean" else 1)
    low, high = answer.percentiles.T
    return {"90 %": _share((low <= truth) & (truth <= high)), "std / RMSE": _spread(answer.std, truth - answer.mean)}


def sums(case: Case) -> dict[str, Measure]:
    """Return sums of rows at random."""
    order = np.arange(len(case.rows))
    named = {size: _blocks(case, "sum", size, order) for size in SIZES}
    return {f"{size} rows, {name}": each for size, of in named.items() for name, each in of.items()}


def sums_alike(case: Case) -> dict[str, Measure]:
    """Return sums of 50 rows that are alike in their first number, where it is not missing."""
    first, hidden = case.rows.numbers[:, 0], case.rows.hidden
    if hidden is not None:
        first = np.where(hidden[:, 0], np.random.default_rng(0).uniform(-1.0, 1.0, len(first)), first)
    return _blocks(case, "sum", 50, np.argsort(first))


def means(case: Case) -> dict[str, Measure]:
    """Means of 100 rows."""
    return _blocks(case, "mean", 100, np.arange(len(case.rows)))


def counts_above(case: Case) -> dict[str, Measure]:
    """How many of 100 rows exceed the middle outcome."""
    return _blocks(case, "count_above", 100, np.arange(len(case.rows)))


def weighted_sums(case: Case) -> dict[str, Measure]:
    """Return sums of 100 rows with quantities of .5 to 1.5."""
    return _blocks(case, "sum", 100, np.arange(len(case.rows)), weighted=True)


def why(case: Case) -> dict[str, Measure]:
    """Shares add up to the answer; the feature without effect has a small one."""
    explained = case.some(EXPLAINED).model().explain(case.some(EXPLAINED).rows.features())
    whole: Any = explained.answer
    measure, total = next(
        (name, values)
        for name, values in (
            ("mean", getattr(whole, "mean", None)),
            ("probability", getattr(whole, "probabilities", None)),
        )
        if values is not None
    )
    total = total if total.ndim == 1 else total.max(axis=1)
    shares, baseline = explained.why.shares[measure], explained.why.baseline[measure]
    unit = float(np.abs(total - baseline).max()) or 1.0
    size = np.abs(shares).mean(axis=0)
    dummy = size[explained.why.features.index("x3")] if "x3" in explained.why.features else 0.0
    return {
        "adds up": _share(np.abs(baseline + shares.sum(axis=1) - total) < 1e-6 * unit, 1.0),
        "of no effect": Measure(float(dummy / size.sum()), 0.0, 0.08, "most", count=len(shares)),
    }


def asking(case: Case) -> dict[str, Measure]:
    """Return the fall of the variance once a missing cell is known, as a share of it, beside the forecast."""
    some = case.some(300)
    rows = some.rows
    assert rows.hidden is not None  # noqa: S101 - `ANSWERS` asks for missing cells
    options = PredictOptions(percentiles=(), worth_asking=True)
    explained = some.model().explain(rows.features())
    forecast, hidden = np.zeros(len(rows)), rows.hidden.copy()
    for row, cells in enumerate(explained.worth_asking):
        if cells and cells[0]["feature"] in NUMBERS:
            forecast[row] = cells[0]["fall"]
            hidden[row, NUMBERS.index(cells[0]["feature"])] = False
    after = replace(some, rows=replace(rows, hidden=hidden)).answer(replace(options, worth_asking=False))
    before: Any = explained.answer
    known = (hidden != rows.hidden).any(axis=1)
    before_all = float(np.mean(before.std[known] ** 2))
    fall, promise = (float(np.mean(each[known])) / before_all for each in (before.std**2 - after.std**2, forecast))
    return {"fall of the variance": Measure(fall, promise, count=int(known.sum()), said=True)}


def counterfactual(case: Case) -> dict[str, Measure]:
    """Rows that are changed until an outcome is likely to exceed a threshold, beside the true probability of that."""
    threshold = float(np.quantile(case.known.training.outcomes, 0.6))
    goal = Goal.model_validate({"exceedance": {"threshold": threshold, "at_least": GOAL}})
    posterior, columns = case.posterior, case.some(CHANGED).columns
    options, hits, generator = goal.options(posterior.schema), [], np.random.default_rng(0)
    for row in range(len(next(iter(columns.values())))):
        found = answer_requests(
            counterfactuals(
                posterior.schema, posterior.encoder.distribution, select_rows(columns, np.array([row])), goal, options
            ),
            posterior,
        )
        if len(found.distances):
            numbers = np.array([[found.columns[name][0] if name in found.columns else 0.0 for name in NUMBERS]])
            category = np.array([int(str(found.columns["kind"][0])[1:])])
            again = case.known.world.outcomes(generator, np.tile(numbers, (200, 1)), np.tile(category, 200))
            hits.append(float(np.mean(again > threshold)))
    return {"reached": Measure(float(np.mean(hits)), GOAL, 0.04, "least", count=len(hits))} if hits else {}


def decide(case: Case) -> dict[str, Measure]:
    """`probability_best` of the action of the best mean, beside how often it is the best. It sets the category."""
    some, world = case.some(CONTEXTS), case.known.world
    kinds = sorted({f"k{number:02}" for number in case.known.training.category.tolist()})
    actions = [{"id": name, "inputs": {"kind": name}} for name in kinds]
    if world.classes:
        utility = {name: float(place) for place, name in enumerate(case.posterior.schema.target.classes or ())}
        actions = [action | {"utility": utility} for action in actions]
    found = some.model().decide(some.rows.features().drop_columns("kind"), actions, policy="greedy")
    values = []
    for name in kinds:
        category = np.full(len(some.rows), int(name[1:]))
        if world.classes:
            values.append(world.probabilities(some.rows.numbers, category) @ np.arange(world.classes))
        else:
            values.append(world.moments(some.rows.numbers, category)[0])
    best = np.stack(values, axis=1).argmax(axis=1)
    each = np.arange(len(best))
    return {"probability_best": _share(found.choice == best, found.probability_best[each, found.choice], 0.06)}


def probabilities(case: Case, *, calibrated: bool = True) -> dict[str, Measure]:
    """How often the likeliest class is right, and how often a class comes that is said to be unlikely."""
    said = case.answer(PredictOptions(percentiles=(), calibrated=calibrated)).probabilities
    labels = case.rows.outcomes.astype(np.int64)
    likeliest, among = said.argmax(axis=1), (said > 0.02) & (said < 0.3)
    truth = labels[:, None] == np.arange(said.shape[1])
    found = {"the likeliest": _share(likeliest == labels, said.max(axis=1))}
    return found | ({"2 to 30 %": _share(truth[among], said[among])} if among.any() else {})


def raw_probabilities(case: Case) -> dict[str, Measure]:
    """Return the same without calibration."""
    return probabilities(case, calibrated=False)


def sets(case: Case) -> dict[str, Measure]:
    """Prediction sets of 90 %."""
    inside = case.answer(PredictOptions(percentiles=())).prediction_set
    return {"90 %": _share(inside[np.arange(len(inside)), case.rows.outcomes.astype(np.int64)], side="least")}


def counts(case: Case) -> dict[str, Measure]:
    """How many of 100 rows are of each class."""
    table, classes = case.rows.features(), case.known.world.classes
    groups = np.arange(len(case.rows)) // 100
    answer: Any = case.model().aggregate(table.append_column("block", [groups]), by="block", percentiles=(5.0, 95.0))
    truth = np.stack([np.bincount(groups, case.rows.outcomes == place) for place in range(classes)], axis=1)
    low, high = answer.percentiles[..., 0], answer.percentiles[..., 1]
    return {
        "90 %": _share((low <= truth) & (truth <= high), side="least"),
        "std / RMSE": _spread(answer.std, truth - answer.mean),
    }


def abstain(case: Case) -> dict[str, Measure]:
    """Errors among the decisions that are taken at a risk of 10 %."""
    found = case.model().decide(case.rows.features(), policy="greedy", risk=RISK)
    taken = found.choice >= 0
    wrong = found.choice != case.rows.outcomes
    return {"risk": _share(wrong[taken], RISK, side="most")} if taken.any() else {}


def _of(case: Case) -> dict[str, Measure]:
    return sets(case) | probabilities(case) if case.known.world.classes else prediction(case) | function(case)


def after_update(case: Case) -> dict[str, Measure]:
    """Predictions after `murho update` with as many rows again."""
    rows = labelled_rows(case.known.fresh.labelled(case.known.world.classes), case.posterior)
    revised = update(case.posterior, rows, UpdateOptions(), reporter=Reporter())
    return _of(replace(case, posterior=revised.posterior))


def after_pruning(case: Case) -> dict[str, Measure]:
    """Predictions without half of the weights, calibrated by other rows."""
    rows = labelled_rows(case.known.fresh.labelled(case.known.world.classes), case.posterior)
    return _of(replace(case, posterior=prune(case.posterior, 0.5, rows).posterior))


def graph(case: Case) -> dict[str, Measure]:
    """Compare the ONNX graph's answers with the model's: to 1 % of std, since it knows no rows unlike the others."""
    from pathlib import Path

    import onnxruntime

    from murho.model.python.onnx_export import GRAPH_FILE, export

    with TemporaryDirectory() as folder:
        export(case.posterior, Path(folder))
        session = onnxruntime.InferenceSession(Path(folder) / GRAPH_FILE)
    encoded = case.posterior.encoder.encode(case.columns)
    names = [each.name for each in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"rows": np.asarray(encoded.inputs)}), strict=True))
    own = case.posterior.predict_encoded(encoded, PredictOptions())
    close = [np.abs(found[name] - getattr(own, name)) <= 0.01 * own.std for name in ("mean", "std")]
    return {"equal": _share(np.concatenate(close), 1.0, 0.0)}


@dataclass(frozen=True, slots=True)
class Answer:
    """A kind of answer.

    Attributes:
        measure: What measures it.
        unless: Why it is not measured in a case; empty: it is.
        calibrated: Whether it is promised to be calibrated.
    """

    measure: Callable[[Case], dict[str, Measure]]
    unless: Callable[[Case], str]
    calibrated: bool = True


def _numbers(case: Case) -> str:
    return "classes have other answers" if case.known.world.classes else ""


def _classes(case: Case) -> str:
    return "" if case.known.world.classes else "numbers have other answers"


def _parts(case: Case) -> str:
    if case.known.world.classes or not case.known.has_parts:
        return "noise and function can't be separated there"
    return ""


def _function(case: Case) -> str:
    if case.known.training.hidden is not None:
        return "what a missing cell would tell is noise to a network that learned from such rows"
    return _parts(case)


def _noise(case: Case) -> str:
    return _function(case) or ("what a missing cell would tell counts as doubt" if case.incomplete else "")


def _totals(case: Case) -> str:
    if not case.known.has_parts and case.condition == "later rows":
        return "later rows go together: one future is one total (benchmarks.totals --known has many)"
    return _numbers(case)


def _few(*names: str) -> Callable[[Case], str]:
    def unless(case: Case) -> str:
        return "" if case.condition in names else f"measured for {', '.join(names)}: it does not depend on the rest"

    return unless


def _within(case: Case) -> str:
    if case.far:
        return "only within the range: what is shared out or changed there is `prediction` again"
    if "kind" not in {feature.name for feature in case.posterior.schema.features}:
        return "the category was left out as a feature"
    return ""


def _changed(case: Case) -> str:
    if case.incomplete or not case.known.has_parts:
        return "the truth of a changed row is not known"
    return _numbers(case) or _within(case)


ANSWERS: Mapping[str, Answer] = {
    "prediction": Answer(prediction, _numbers),
    "raw": Answer(raw, _numbers, calibrated=False),
    "function": Answer(function, _function),
    "noise": Answer(noise, _noise),
    "exceedance": Answer(exceedance, _numbers),
    "totals, sum": Answer(sums, _totals),
    "totals, rows alike": Answer(sums_alike, _totals),
    "totals, mean": Answer(means, _totals),
    "totals, count_above": Answer(counts_above, _totals),
    "totals, weighted": Answer(weighted_sums, _totals),
    "probabilities": Answer(probabilities, _classes),
    "raw probabilities": Answer(raw_probabilities, _classes, calibrated=False),
    "sets": Answer(sets, _classes),
    "totals, count": Answer(counts, _classes),
    "abstain": Answer(abstain, _classes),
    "decide": Answer(decide, lambda case: _within(case) or ("" if case.known.has_parts else _parts(case))),
    "why": Answer(why, _within),
    "worth asking": Answer(asking, lambda case: _numbers(case) or ("" if case.incomplete else "no cell is missing")),
    "counterfactual": Answer(counterfactual, _changed),
    "update": Answer(after_update, _few("complete", "counts", "3 classes", "--quick")),
    "prune": Answer(after_pruning, _few("complete", "counts", "3 classes")),
    "onnx": Answer(graph, _few("complete", "30 % missing, trained so", "skewed", "heavy tails")),
}
"""Name → answer."""
