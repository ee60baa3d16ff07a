"""Decisions: for each context one of A actions, chosen by draws of the weights.

A draw is a function of all rows, so under draw s every action a of a context x has one value, its expected outcome less
its cost: ``v_s(x, a) = f_s(x, a) - cost_a`` for a target to be maximised, ``f_s(x, a) + cost_a`` for one to be small,
and ``sum_c u_ac p_s(c | x, a) - cost_a`` for a classifier with the utility u of each class. The best action differs
between draws as far as little is known. The policies:

thompson
    The best action under one draw, each of the S draws alike. So an action is chosen with the share of the draws under
    which it is best (Thompson 1933, doi:10.2307/2332286): its propensity, exactly.
greedy
    The action of the best mean.
ucb
    The best of mean plus ``width`` times epistemic_std (minus, for a target to be minimised).
threshold
    Of the actions whose new observation is beyond a threshold with some probability, that of the best mean; none, if
    there is no such action.

Of equal values the first action's counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from murho.model.arrays import Array, Bools, Doubles, Ints, with_arrays
from murho.model.calibration.abstention import HeldOutClasses, least_confidence
from murho.model.calibration.class_calibration import Calibration, ClassCalibration
from murho.model.errors import InputError, OptionError, Problem, list_names
from murho.model.predictive.prediction import AnyPrediction, ClassPrediction, Prediction, PredictOptions
from murho.model.tables.schema import Columns, Schema, Target

POLICIES = ("thompson", "greedy", "ucb", "threshold")
GOALS = ("max", "min")
UNSURE = "unsure"
"""The answer in place of an action where none can be chosen."""
KEYS = ("id", "inputs", "cost", "utility")
LONGEST_ID = 200
MOST_PROBLEMS = 50
MOST_VALUES = 2**23
"""Actions times draws times classes of one context, which are decided together, twice: 64 MiB."""
VALUES_AT_A_TIME = 2**20
"""The same of all contexts of a part."""


@dataclass(frozen=True, slots=True)
class DecideOptions:
    """How actions are chosen.

    Attributes:
        policy: One of `POLICIES`.
        goal: Whether the target is to be large or small; of a classifier the utility, which is to be large.
        width: Of ``ucb``: number of epistemic standard deviations, not negative.
        threshold: Of ``threshold``, in the target's unit, or that of the utility.
        at_least: Of ``threshold``: probability with which a new observation is to be beyond it.
        risk: Largest share of wrong decisions among those of a classifier that are taken; None: all are taken.
        of: Samples, seed, calibrated.
    """

    policy: str = "thompson"
    goal: str = "max"
    width: float = 1.0
    threshold: float | None = None
    at_least: float = 0.9
    risk: float | None = None
    of: PredictOptions = field(default_factory=PredictOptions)

    def check(self, target: Target, actions: Actions) -> None:
        """Check the options against a target and the actions.

        Raises:
            OptionError: One of them can't be used; the message begins with its name.
        """
        for name, known in (("policy", POLICIES), ("goal", GOALS)):
            if getattr(self, name) not in known:
                raise OptionError(f"{name}: expected {' or '.join(known)}, not {getattr(self, name)!r:.80}")
        if not 0.0 <= self.width < math.inf:
            raise OptionError(f"width: expected a number from 0, not {self.width}")
        if (self.policy == "threshold") != (self.threshold is not None):
            raise OptionError("threshold: the policy threshold needs it, and no other does")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise OptionError(f"threshold: expected a finite number, not {self.threshold}")
        if not 0.0 < self.at_least < 1.0:
            raise OptionError(f"at_least: expected a number between 0 and 1, not {self.at_least}")
        if self.of.samples < 1:
            raise OptionError("samples: decisions are made by draws; ask for at least 1")
        if target.classes is not None and self.goal != "max":
            raise OptionError(f"goal: utilities of {target.name!r} are to be large; leave it out")
        if self.risk is None:
            return
        if not 0.0 < self.risk < 1.0:
            raise OptionError(f"abstain: expected a risk between 0 and 1, not {self.risk}")
        if target.classes is None:
            raise OptionError(
                f"abstain: {target.name!r} is a number, of which held-out rows don't tell what other actions would "
                'have given; the policy "threshold" holds back unsure actions'
            )
        if actions.features:
            raise OptionError("abstain: held-out rows don't tell what actions that set features would have given")
        if self.policy != "greedy" or not self.of.calibrated:
            raise OptionError('abstain: it is for calibrated decisions of the policy "greedy"')

    @property
    def predict_options(self) -> PredictOptions:
        """What the rows of all contexts and actions are asked."""
        of = self.of
        exceeded = () if self.threshold is None else (self.threshold,)
        return PredictOptions(of.samples, (), of.seed, thresholds=exceeded, draws=True, calibrated=of.calibrated)


@dataclass(frozen=True, slots=True)
class Actions:
    """A actions.

    Attributes:
        names: ``[A]``, each once.
        costs: ``[A]``, in the unit of the target or of the utility.
        utilities: Of each class under each action, ``[A, C]``; None: the target is a number.
        inputs: The features that each action sets, ``[A]``: the same ones, or none, which takes a classifier.
    """

    names: tuple[str, ...]
    costs: Doubles
    utilities: Doubles | None = None
    inputs: tuple[Mapping[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what the actions set, in order of appearance."""
        return tuple(dict.fromkeys(name for each in self.inputs for name in each))

    @property
    def rows(self) -> int:
        """Rows of a context: one an action or, where no action sets a feature, one."""
        return len(self) if self.features else 1

    def values(self, samples: int) -> int:
        """Numbers that a context has under all draws."""
        classes = 1 if self.utilities is None else self.utilities.shape[1]
        return samples * (self.rows * classes + len(self))

    def contexts_at_a_time(self, samples: int) -> int:
        """Contexts whose draws are decided together, at least one.

        Raises:
            InputError: The draws of one context are too many.
        """
        values = self.values(samples)
        if values > MOST_VALUES:
            raise InputError(
                [Problem("/actions", f"{len(self)} actions under {samples} draws are too many; ask less.")]
            )
        return max(1, VALUES_AT_A_TIME // values)

    @classmethod
    def read(cls, given: object, target: Target) -> Actions:
        """Read actions as a request has them.

        Args:
            given: A list of objects with ``id``, ``inputs``, ``cost`` and, for a classifier, ``utility``; None: of a
                classifier, each class is an action, of utility 1 if it is the right one, else 0.
            target: The target.

        Raises:
            InputError: An action can't be used; every problem has its pointer.
        """
        classes = target.classes
        if given is None and classes is not None:
            return cls(tuple(classes), np.zeros(len(classes)), np.eye(len(classes)))
        if not isinstance(given, list) or not given:
            raise InputError([Problem("/actions", 'Expected a list of at least one {"id": …, "inputs": {…}}.')])
        problems: list[Problem] = []
        names: dict[str, int] = {}
        for number, each in enumerate(given):
            problems += [Problem(f"/actions/{number}{where}", what) for where, what in _wrong(each, names, classes)]
            if isinstance(each, dict) and isinstance(each.get("id"), str):
                names.setdefault(each["id"], number)
            if len(problems) >= MOST_PROBLEMS:
                break
        if problems:
            raise InputError(problems)
        utilities = (
            None if classes is None else np.array([[each["utility"][name] for name in classes] for each in given])
        )
        costs = np.array([each.get("cost") or 0.0 for each in given], dtype=np.float64)
        inputs = tuple(each.get("inputs") or {} for each in given)
        return cls(tuple(names), costs, utilities, inputs)


def _wrong(action: Any, names: Mapping[str, int], classes: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return what is wrong with one action, each with the place in it.

    Args:
        action: The action.
        names: Names of the actions before it, with their numbers.
        classes: Of the target; None: it is a number.
    """
    if not isinstance(action, dict):
        return [("", 'Expected an object such as {"id": "eat", "inputs": {…}}.')]
    found = [
        (f"/{str(key)[:100]}", f"There is no such key; there are {', '.join(KEYS)}.") for key in action.keys() - KEYS
    ]
    name, inputs, cost = action.get("id"), action.get("inputs"), action.get("cost")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_ID or name == UNSURE:
        found.append(("/id", f"Expected a string of 1 to {LONGEST_ID} characters, other than {UNSURE!r}."))
    elif name in names:
        found.append(("/id", f"Action {names[name]} has this id, too; every action has its own."))
    if not isinstance(inputs, dict) and (classes is None or inputs is not None):
        found.append(("/inputs", "Expected an object with the features that the action sets."))
    elif classes is None and not inputs:
        found.append(("/inputs", "The action sets no feature, so nothing tells it from others."))
    if cost is not None and not _is_number(cost):
        found.append(("/cost", "Expected a finite number."))
    utility = action.get("utility")
    if classes is None:
        if utility is not None:
            found.append(("/utility", "Classes have a utility, and the target is a number; leave it out."))
    elif not isinstance(utility, dict) or utility.keys() != set(classes) or not all(map(_is_number, utility.values())):
        found.append(("/utility", f"Expected an object with a finite number for each class: {list_names(classes, 5)}."))
    return found


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e100  # type: ignore[arg-type]


def cross(contexts: Columns, actions: Columns, schema: Schema, numbers: tuple[int, int]) -> dict[str, Array]:
    """Return the rows of all actions of each context, in the order of contexts.

    Args:
        contexts: Canonical columns of the features of contexts, ``[N]`` each.
        actions: Those of actions, ``[A]`` each; the two have all features of the schema.
        schema: The features.
        numbers: N and the rows of a context, `Actions.rows`.

    Returns:
        Canonical columns, ``[N * rows]`` each.
    """
    of_contexts, of_actions = numbers
    return {
        feature.name: np.repeat(contexts[feature.name], of_actions)
        if feature.name in contexts
        else np.tile(actions[feature.name], of_contexts)
        for feature in schema.features
    }


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions for N contexts between A actions.

    Attributes:
        actions: The actions' names, ``[A]``.
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether mean, std and epistemic_std are calibrated.
        choice: Number of the action, ``[N]``; -1: unsure.
        propensity: Probability of this choice over the S draws, ``[N]``.
        draw: Number of the draw that decides, ``[N]``; None, if the policy does not need one.
        mean: Expected value of each action, ``[N, A]``: outcome or utility, with its cost.
        std: Standard deviation of a new value, ``[N, A]``.
        epistemic_std: Its part that the draws disagree about, ``[N, A]``.
        probability_best: Share of the draws under which the action is the best, ``[N, A]``.
    """

    actions: tuple[str, ...]
    samples: int
    seed: int
    calibrated: bool
    choice: Ints
    propensity: Doubles
    draw: Ints | None
    mean: Doubles
    std: Doubles
    epistemic_std: Doubles
    probability_best: Doubles

    @property
    def chosen(self) -> list[str]:
        """Name of the action of each context, or `UNSURE`."""
        return [UNSURE if number < 0 else self.actions[number] for number in self.choice.tolist()]

    def document(self) -> dict[str, Any]:
        """Return the decisions as JSON data, with arrays as they are."""
        return {
            "samples": self.samples,
            "seed": self.seed,
            "action": self.chosen,
            "propensity": self.propensity,
            **({} if self.draw is None else {"draw": self.draw}),
            "actions": list(self.actions),
            "mean": self.mean,
            "std": self.std,
            "epistemic_std": self.epistemic_std,
            "probability_best": self.probability_best,
            "calibrated": self.calibrated,
        }


def join_decisions(parts: Sequence[Decisions]) -> Decisions:
    """Return the decisions for the contexts of several parts, in order."""
    return with_arrays(np.concatenate, parts)


def draw_numbers(contexts: int, samples: int, seed: int | None = None) -> Ints:
    """Return a draw for each of N contexts, each of the S draws alike; ``seed`` None: another at every call."""
    return np.random.default_rng(seed).integers(samples, size=contexts, dtype=np.int64)


def choose(
    policy: str,
    drawn: Doubles,
    mean: Doubles,
    draws: Ints,
    bonus: Doubles | None = None,
    allowed: Bools | None = None,
) -> tuple[Ints, Doubles, Doubles]:
    """Choose an action for each of N contexts from values that are to be large: the policies of all agents.

    Args:
        policy: One of `POLICIES`.
        drawn: Value of each action under each draw, ``[N, A, S]``.
        mean: Its mean, ``[N, A]``.
        draws: Number of the draw that decides for each context, ``[N]``.
        bonus: Of ``ucb``: what is added to the mean, ``[N, A]``.
        allowed: Of ``threshold``: whether each action is, ``[N, A]``.

    Returns:
        Number of the action, ``[N]``, -1 for none; its propensity over the draws, ``[N]``; and the share of the draws
        under which each action is the best, ``[N, A]``.
    """
    best, own = drawn.argmax(axis=1), np.arange(len(drawn))
    probability_best = np.zeros(mean.shape)
    np.add.at(probability_best, (own[:, None], best), 1.0)
    probability_best /= drawn.shape[2]  # once, at the end: a sum of shares may be above 1
    if policy == "thompson":
        choice = best[own, draws]
        return choice, probability_best[own, choice], probability_best
    values = mean if bonus is None or policy != "ucb" else mean + bonus
    if allowed is not None:
        values = np.where(allowed, values, -math.inf)
    choice = values.argmax(axis=1)
    if allowed is not None:
        choice = np.where(allowed.any(axis=1), choice, -1)
    return choice, np.ones(len(drawn)), probability_best


def decide(
    answer: AnyPrediction,
    actions: Actions,
    options: DecideOptions,
    draws: Ints,
    calibration: Calibration | None = None,
) -> Decisions:
    """Choose an action for each of N contexts.

    Args:
        answer: The answer to `DecideOptions.predict_options` for the rows of all contexts: A rows per context, in the
            order of the actions, or one, if the actions of a classifier change no feature.
        actions: The actions.
        options: Checked by `DecideOptions.check`.
        draws: Number of the draw that decides for each context, ``[N]``, from 0 to S - 1.
        calibration: The model's, which has the held-out rows of abstention.
    """
    if isinstance(answer, ClassPrediction):
        drawn, mean, std, epistemic = _of_classes(answer, actions, len(draws))
    else:
        drawn, mean, std, epistemic = _of_numbers(answer, actions, options.goal, len(draws))
    sign = 1.0 if options.goal == "max" else -1.0
    allowed = None
    if options.policy == "threshold":
        allowed = _beyond(answer, actions, options, len(draws)) >= options.at_least
    choice, propensity, probability_best = choose(
        options.policy, sign * drawn, sign * mean, draws, options.width * epistemic, allowed
    )
    if options.risk is not None and isinstance(answer, ClassPrediction):
        evidence = calibration.held_out if isinstance(calibration, ClassCalibration) else None
        choice = np.where(_sure_enough(answer, actions, options.risk, choice, evidence), choice, -1)
    return Decisions(
        actions.names,
        answer.samples,
        answer.seed,
        answer.calibrated,
        choice,
        propensity,
        draws if options.policy == "thompson" else None,
        mean,
        std,
        epistemic,
        probability_best,
    )


def _of_numbers(
    answer: Prediction, actions: Actions, goal: str, contexts: int
) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Values of draws ``[N, A, S]``, and mean, std and epistemic_std ``[N, A]``."""
    drawn, std, epistemic = (cast("Doubles", each) for each in (answer.draws, answer.std, answer.epistemic_std))
    costs = actions.costs if goal == "max" else -actions.costs
    shape = (contexts, len(actions))
    values = drawn.reshape(*shape, -1) - costs[:, None]
    return values, answer.mean.reshape(shape) - costs, std.reshape(shape), epistemic.reshape(shape)


def _of_classes(answer: ClassPrediction, actions: Actions, contexts: int) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Return the same, of utilities."""
    utilities, costs = cast("Doubles", actions.utilities), actions.costs
    drawn = cast("Doubles", answer.draws)
    # One row of a context holds for all actions, or each action has its own.
    shape = (contexts, actions.rows) if actions.features else (contexts,)
    axes = "na" if actions.features else "n"
    values = np.einsum(f"{axes}sc,ac->nas", drawn.reshape(*shape, *drawn.shape[1:]), utilities) - costs[:, None]
    probabilities = answer.probabilities.reshape(*shape, -1)
    mean, second = (np.einsum(f"{axes}c,ac->na", probabilities, each) for each in (utilities, utilities**2))
    std = np.sqrt(np.maximum(second - mean**2, 0.0))
    return values, mean - costs, std, np.minimum(values.std(axis=2), std)


def _beyond(answer: AnyPrediction, actions: Actions, options: DecideOptions, contexts: int) -> Doubles:
    """Probability that a new observation is beyond the threshold, ``[N, A]``; costs do not count in it."""
    if isinstance(answer, ClassPrediction):
        exceeding = np.asarray(cast("Doubles", actions.utilities) > cast("float", options.threshold), dtype=np.float64)
        return _of_classes(answer, replace(actions, costs=np.zeros(len(actions)), utilities=exceeding), contexts)[1]
    exceeded = cast("Doubles", answer.exceedance)[:, 0].reshape(contexts, len(actions))
    return exceeded if options.goal == "max" else 1.0 - exceeded


def _sure_enough(
    answer: ClassPrediction, actions: Actions, risk: float, choice: Ints, evidence: HeldOutClasses | None
) -> Bools:
    """Whether the error of each decision is controlled, ``[N]``; never of a row unlike the training rows."""
    if evidence is None or answer.outlier is None or actions.features:
        return np.zeros(len(choice), dtype=np.bool_)
    utilities = cast("Doubles", actions.utilities)
    net = utilities - actions.costs[:, None]
    right = net >= net.max(axis=0)  # of a class: no other action is better

    def confidence(probabilities: Doubles, chosen: Ints) -> Doubles:
        return np.asarray((probabilities * right[chosen]).sum(axis=1))

    known = evidence.probabilities
    decided = (known @ utilities.T - actions.costs).argmax(axis=1)
    least = least_confidence(confidence(known, decided), ~right[decided, evidence.labels], risk)
    return np.asarray((confidence(answer.probabilities, choice) >= least) & ~answer.outlier)
