"""The contract of engines: cases that run over all of them, and the answer written out in double precision.

A test module of an engine has a subclass of `EngineContract` with the fixture ``make``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.bbb.number_likelihoods import GaussianMixtureLikelihood
from murho.model.bbb.registry import make_likelihood
from murho.model.calibration.conformal import CalibratedSpread, ConformalMap
from murho.model.distributions.mixtures import Mixture, WideRule, normal_cdf, score_of_tails
from murho.model.distributions.target_transforms import Identity, Logarithm, Standardisation, Transform
from murho.model.predictive.plans import DrawnRows, Engine, PredictionPlan, TargetModel
from murho.model.predictive.prediction import PredictOptions
from tests.model.maps import odd_map
from tests.model.mixture_references import bisect, tail

MakeEngine = Callable[[TargetModel], Engine]
CPU = torch.device("cpu")
MEMBERS, SAMPLES = 3, 20
NOISES = ("fixed", "homoscedastic", "heteroscedastic", "mixture")
TRANSFORMS: dict[str, Transform] = {"none": Identity(), "log": Logarithm(0.25, 3.0)}
CALIBRATION = odd_map((0.5, 1.0, 2.0, 3.0), (0.4, 1.3, 1.9, 4.0), 100)
FAR_OUT, NEAR_EACH_OTHER = (1e-13, 50.0, 100.0 - 1e-12), tuple(50.0 + 1e-7 * step for step in range(12))
PLAIN = PredictOptions(samples=SAMPLES, percentiles=(1.0, 5.0, 50.0, 97.5))
EVERYTHING = replace(PLAIN, thresholds=(-1.0, 0.5, 1.5, 4.0), draws=True, noise_moments=True)


def target_model(noise: str, transform: str = "none", *, wide: bool = True) -> TargetModel:
    likelihood = make_likelihood(noise, members=MEMBERS, sigma=0.3, components=3)
    assert isinstance(likelihood, GaussianMixtureLikelihood)
    if noise == "homoscedastic":
        likelihood.load_state_dict({"rho": torch.tensor([[-1.5], [-1.0], [-2.0]])})
    rule = WideRule.after(300) if wide else None
    return TargetModel(
        likelihood.requires_grad_(requires_grad=False), Standardisation(TRANSFORMS[transform], 1.5, 0.7), rule, MEMBERS
    )


@dataclass(frozen=True)
class Case:
    """Outputs of a network for some rows, every third of them beyond the training rows."""

    target: TargetModel
    outputs: Tensor
    members: Tensor
    mask: Tensor

    @classmethod
    def of(cls, target: TargetModel, rows: int, seed: int = 0) -> Self:
        generator = torch.Generator().manual_seed(seed)
        shape = (SAMPLES, rows, target.likelihood.outputs)
        outputs = torch.randn((1, *shape[1:]), generator=generator) + 0.3 * torch.randn(shape, generator=generator)
        members = torch.arange(SAMPLES) % target.members
        return cls(target, outputs, members, torch.arange(rows) % 3 == 2)

    def of_rows(self, rows: slice) -> Self:
        return replace(self, outputs=self.outputs[:, rows], mask=self.mask[rows])

    def asked(self, engine: Engine, options: PredictOptions, calibration: ConformalMap | None = None) -> dict[str, Any]:
        plan = PredictionPlan.of(options, calibration, CPU)
        with torch.inference_mode():
            return engine.answer(plan, DrawnRows(self.outputs, self.members, self.mask, self.target, engine))

    def expected(self, options: PredictOptions, calibration: ConformalMap | None = None) -> dict[str, Tensor]:
        """By the definitions, in double precision: sums over all components, percentiles by bisection."""
        target, rule, learned = self.target, self.target.wide, self.target.standardisation
        parts = cast("GaussianMixtureLikelihood", target.likelihood).components(self.outputs.double(), self.members)
        means = parts[0] * learned.scale + learned.location  # [S, B, K]
        noise = (parts[1] * learned.scale).expand_as(means)
        weights = torch.ones_like(means) if parts[2] is None else parts[2]
        values, deviations = learned.transform.moments(means, noise)
        of_draws = (weights * values).sum(dim=2)
        within = (weights * (deviations.square() + values.square())).sum(dim=2) - of_draws.square()
        apart, lognormal = values - of_draws.unsqueeze(2), torch.zeros_like(values)
        if isinstance(learned.transform, Logarithm):
            above, cv = values + learned.transform.shift, deviations / (values + learned.transform.shift)
            lognormal = (cv.square() + 3.0) * cv.square().square() * above**3
        mean, epistemic = of_draws.mean(dim=0), of_draws.std(dim=0, correction=0)
        variance = within.mean(dim=0) + epistemic.square()
        mixture = Mixture(_flat(means), _flat(noise), _flat(weights / len(means)))
        if rule is not None:
            centre, spread = mixture.moments()
            aleatoric = (variance - epistemic.square()).sqrt()
            wide = rule.noise(spread, spread * aleatoric / variance.sqrt(), learned.scale)
            mixture = mixture.with_component(centre, wide, rule.weight)
            other, deviation = learned.transform.moments(centre, wide)
            second = torch.lerp(variance + mean.square(), deviation.square() + other.square(), rule.weight)
            moved = torch.lerp(mean, other, rule.weight)
            mean, variance = moved, second - moved.square()
        answer = {
            "mean": mean,
            "epistemic_std": epistemic,
            "aleatoric_std": (variance - epistemic.square()).sqrt(),
            "std": variance.sqrt(),
            "draws": of_draws.T,
            "variances": within.T,
            "third": (weights * (apart**3 + 3.0 * apart * deviations.square() + lognormal)).sum(dim=2).mean(dim=0),
        }
        levels = torch.tensor(options.percentiles, dtype=torch.float64) / 100.0
        thresholds = torch.tensor(options.thresholds, dtype=torch.float64)
        if not options.noise:
            answer["std"] = epistemic
            answer["percentiles"] = torch.quantile(of_draws, levels, dim=0).T
            answer["exceedance"] = (of_draws.unsqueeze(-1) > thresholds).double().mean(dim=0)
            return answer
        scores, only_widen = torch.special.ndtri(levels).expand(len(mean), -1), self.mask.unsqueeze(1)
        if calibration is not None:
            scores = calibration.calibrate(scores, only_widen)
            calibrated = CalibratedSpread.of(calibration, CPU)
            nodes = learned.transform.inverse(torch.stack(bisect(mixture, calibrated.nodes)).mean(dim=0))
            ratio = torch.from_numpy(calibrated.ratio(nodes.numpy(), self.mask.numpy()))
            answer |= {name: answer[name] * ratio for name in ("std", "epistemic_std", "aleatoric_std")}
        answer["percentiles"] = learned.transform.inverse(torch.stack(bisect(mixture, scores)).mean(dim=0))
        at = learned.transform.forward(thresholds).expand(len(mean), -1)
        exceedance = tail(mixture, at, torch.ones_like(at))
        if calibration is not None:
            below = tail(mixture, at, -torch.ones_like(at))
            exceedance = normal_cdf(-calibration.nominal_of(score_of_tails(below, exceedance), only_widen))
        answer["exceedance"] = exceedance
        return answer


def _flat(parts: Tensor) -> Tensor:
    """``[S, B, K]`` to ``[S K, B]``."""
    return parts.transpose(1, 2).flatten(0, 1)


def assert_same(actual: dict[str, Any], expected: dict[str, Any], std: Any, to: float = 3e-6) -> None:
    """Relative to the larger of the value and the row's std; exceedance to as much of the smaller probability."""
    for name, found in actual.items():
        wanted = np.atleast_2d(np.asarray(expected[name]).T)
        difference = np.abs(np.atleast_2d(found.T) - wanted)
        if name == "exceedance":
            allowed = 3.0 * to * np.minimum(wanted, 1.0 - wanted) + 1e-12
        else:
            power = {"variances": 2, "third": 3}.get(name, 1)
            allowed = to * np.maximum(np.abs(wanted), np.asarray(std) ** power)
        assert (difference <= allowed).all(), (name, float((difference - allowed).max()))


NARROWING = odd_map((1.0, 3.0), (0.7, 2.1), 100)


LEVELS = tuple(0.5 * step for step in range(1, 200))


def std_of_percentiles(percentiles: np.ndarray) -> np.ndarray:
    """Return standard deviation of each row's distribution from its percentiles at `LEVELS`, by the trapezoid rule."""
    weights = np.ones(len(LEVELS))
    weights[[0, -1]] = 0.5
    mean = np.average(percentiles, axis=1, weights=weights)
    squares = np.average((percentiles - mean[:, None]) ** 2, axis=1, weights=weights)
    return np.asarray(np.sqrt(squares))


class EngineContract:
    """Subclasses have the fixture ``make``: an engine for a target model."""

    @pytest.mark.parametrize("wide", [False, True], ids=["", "wide"])
    @pytest.mark.parametrize("transform", TRANSFORMS)
    @pytest.mark.parametrize("noise", NOISES)
    def test_answers_are_the_definitions_in_double_precision(
        self, make: MakeEngine, noise: str, transform: str, wide: bool
    ) -> None:
        target = target_model(noise, transform, wide=wide)
        engine = make(target)
        for rows in (1, 20):
            case = Case.of(target, rows)
            expected, alone = case.expected(EVERYTHING), replace(EVERYTHING, noise=False)
            for options in (PLAIN, EVERYTHING):
                assert_same(case.asked(engine, options), expected, expected["std"])
            assert_same(case.asked(engine, alone), case.expected(alone), expected["std"])

    @pytest.mark.parametrize("transform", TRANSFORMS)
    def test_calibration_moves_percentiles_and_exceedance_and_beyond_the_training_rows_only_widens(
        self, make: MakeEngine, transform: str
    ) -> None:
        target = target_model("mixture", transform)
        engine, case = make(target), Case.of(target, 12)
        for some in (case, case.of_rows(slice(0, 2)), case.of_rows(slice(2, 3))):
            expected = some.expected(EVERYTHING, CALIBRATION)
            answer = some.asked(engine, EVERYTHING, CALIBRATION)
            assert_same(answer, expected, expected["std"], to=1e-5)
        raw, calibrated = (case.asked(engine, EVERYTHING, each) for each in (None, CALIBRATION))
        for name in ("std", "percentiles", "exceedance"):
            assert not np.allclose(raw[name], calibrated[name])

    @pytest.mark.parametrize(
        "percentiles", [(), (95.0, 5.0, 50.0), (5.0, 5.0), FAR_OUT, NEAR_EACH_OTHER, tuple(map(float, range(1, 100)))]
    )
    def test_any_levels_may_be_asked_for_in_any_order(self, make: MakeEngine, percentiles: tuple[float, ...]) -> None:
        target = target_model("mixture")
        case, options = Case.of(target, 5), replace(PLAIN, percentiles=percentiles)
        for calibration in (None, CALIBRATION):
            expected = case.expected(options, calibration)
            answer = case.asked(make(target), options, calibration)
            assert_same(answer, expected, expected["std"], to=1e-4 if percentiles == FAR_OUT else 1e-5)
            assert (np.diff(answer["percentiles"][:, np.argsort(percentiles)], axis=1) >= 0.0).all()

    def test_without_draws_there_is_the_mean_of_the_members_alone(self, make: MakeEngine) -> None:
        target = target_model("mixture", "log")
        case = Case.of(target, 7)
        answer = case.asked(make(target), replace(PLAIN, samples=0, draws=True))
        expected = replace(case, target=replace(target, wide=None)).expected(PLAIN)
        np.testing.assert_allclose(answer.pop("mean"), expected["mean"], rtol=1e-6)
        assert answer.pop("draws").shape == (7, 0)
        assert not answer

    @pytest.mark.parametrize("transform", TRANSFORMS)
    @pytest.mark.parametrize("noise", NOISES)
    def test_std_is_that_of_the_distribution_whose_percentiles_are_answered(
        self, make: MakeEngine, noise: str, transform: str
    ) -> None:
        target = target_model(noise, transform)
        engine, case = make(target), Case.of(target, 30)
        options = replace(PLAIN, percentiles=LEVELS)
        for calibration in (NARROWING, CALIBRATION):
            raw, calibrated = (case.asked(engine, options, each) for each in (None, calibration))
            of_percentiles = [std_of_percentiles(answer["percentiles"]) for answer in (raw, calibrated)]
            # Up to 2 % for the nodes and, with a lognormal's tail, 1 % for the trapezoid rule.
            np.testing.assert_allclose(calibrated["std"] / raw["std"], of_percentiles[1] / of_percentiles[0], rtol=0.03)
            for name in ("epistemic_std", "aleatoric_std"):
                np.testing.assert_allclose(calibrated[name] / calibrated["std"], raw[name] / raw["std"])
            both = np.hypot(calibrated["epistemic_std"], calibrated["aleatoric_std"])
            np.testing.assert_allclose(calibrated["std"], both)
            # The outer half per cent on either side is missing from the percentiles, and with it part of the std.
            assert (calibrated["std"] > of_percentiles[1]).all()
            if transform == "none":
                assert (calibrated["std"] < 1.2 * of_percentiles[1]).all()
