"""The map of class probabilities: known distortions are undone, right probabilities stay, chance is not followed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.calibration.classes import ClassMap, fit_class_map
from murho.model.errors import CheckpointError


def _rows(count: int, classes: int, seed: int = 0, spread: float = 1.5) -> tuple[Tensor, Tensor]:
    """Right log-probabilities ``[n, C]``, and labels drawn from them, ``[n]``."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    logits -= torch.linspace(0.0, 1.0, classes, dtype=torch.float64)
    logs = torch.log_softmax(logits, dim=1)
    return logs, torch.multinomial(logs.exp(), 1, generator=generator)[:, 0]


def _loss(fitted: ClassMap, logs: Tensor, labels: Tensor) -> float:
    return float(torch.nn.functional.nll_loss(fitted.log_probabilities(logs), labels))


def _plain(logs: Tensor, labels: Tensor) -> float:
    return _loss(ClassMap.none(logs.shape[1]), logs, labels)


def test_a_temperature_is_found() -> None:
    right, labels = _rows(8000, 5)
    fitted = fit_class_map(right * 2.5, labels)
    assert fitted.weights == pytest.approx((1.0 / 2.5,) * 5, rel=0.15)
    torch.testing.assert_close(fitted.log_probabilities(right * 2.5).exp(), right.exp(), rtol=0.0, atol=0.03)


def test_with_two_classes_it_undoes_the_distortions_of_beta_calibration() -> None:
    right, labels = _rows(8000, 2, spread=2.0)
    # logit q = 0.5 log p_1 - 2 log p_0 + 1, undone numerically on a grid.
    grid = torch.linspace(-30.0, 30.0, 60_001, dtype=torch.float64)
    mapped = 0.5 * torch.nn.functional.logsigmoid(grid) - 2.0 * torch.nn.functional.logsigmoid(-grid) + 1.0
    logit = np.interp((right[:, 1] - right[:, 0]).numpy(), mapped.numpy(), grid.numpy())
    distorted = torch.nn.functional.logsigmoid(torch.from_numpy(np.stack([-logit, logit], axis=1)))
    fitted = fit_class_map(distorted, labels)
    best, before = _plain(right, labels), _plain(distorted, labels)
    assert _loss(fitted, distorted, labels) - best < 0.02 * (before - best)


def test_vector_scaling_undoes_its_own_kind_of_distortion() -> None:
    right, labels = _rows(20_000, 3)
    weights = torch.tensor([1.5, 0.8, 0.6], dtype=torch.float64)
    offsets = torch.tensor([0.8, -0.8, 0.0], dtype=torch.float64)
    distorted = torch.log_softmax((right - offsets) / weights, dim=1)
    fitted = fit_class_map(distorted, labels)
    best, before = _plain(right, labels), _plain(distorted, labels)
    assert _loss(fitted, distorted, labels) - best < 0.03 * (before - best)


@pytest.mark.parametrize(
    ("count", "classes"),
    [
        (30, 2),
        (100, 4),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((30, 4), (100, 2), (1000, 2), (1000, 4))),
    ],
)
def test_right_probabilities_are_left_about_alone(classes: int, count: int) -> None:
    """Mean loss over ten sets of held-out rows, on rows that the map has not seen."""
    new, truth = _rows(4000, classes, seed=99)
    worse = []
    for seed in range(10):
        logs, labels = _rows(count, classes, seed)
        worse.append(_loss(fit_class_map(logs, labels), new, truth) - _plain(new, truth))
    assert np.mean(worse) < 1.0 / count
    assert max(worse) < 3.0 * classes / count


def test_few_rows_change_nothing() -> None:
    logs, labels = _rows(19, 3)
    assert fit_class_map(logs * 3.0, labels) == ClassMap.none(3)
    assert fit_class_map(logs[:0], labels[:0]) == ClassMap.none(3)


def test_none_changes_nothing_but_the_norm() -> None:
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(ClassMap.none(3).log_probabilities(logits), torch.log_softmax(logits, dim=1))


@pytest.mark.parametrize("classes", [2, 4])
def test_the_order_of_the_classes_does_not_matter(classes: int) -> None:
    right, labels = _rows(3000, classes)
    logs = right * 2.0 + torch.tensor([1.5, 0.0, -1.0, 0.0])[:classes]
    order = torch.tensor([2, 0, 3, 1] if classes == 4 else [1, 0])
    place = torch.argsort(order)
    fitted, permuted = fit_class_map(logs, labels), fit_class_map(logs[:, order], place[labels])
    torch.testing.assert_close(
        fitted.log_probabilities(logs)[:, order], permuted.log_probabilities(logs[:, order]), rtol=0.0, atol=1e-4
    )


def test_probabilities_never_fall_where_they_rose() -> None:
    """Also for labels against the probabilities."""
    right, labels = _rows(500, 2)
    assert min(fit_class_map(right, 1 - labels).weights) >= 0.0


@pytest.mark.parametrize("classes", [2, 6])
def test_classes_of_one_row_or_none_and_sure_mistakes_are_finite(classes: int) -> None:
    logs, labels = _rows(60, classes)
    labels = torch.where(labels == classes - 1, 0, labels)
    labels[0] = classes - 1
    logs[0] = torch.log_softmax(torch.tensor([0.0] * (classes - 1) + [-torch.inf], dtype=torch.float64), dim=0)
    assert bool(torch.isfinite(fit_class_map(logs, labels).log_probabilities(logs)).all())
    only = fit_class_map(logs, torch.zeros(60, dtype=torch.int64))
    assert bool(torch.isfinite(only.log_probabilities(logs)).all())
    every = ClassMap((40.0,) * classes, (0.0,) * classes, 0.0025).log_probabilities(logs)
    assert bool((every.exp() > 0.0).all())
    torch.testing.assert_close(every.exp().sum(dim=1), torch.ones(60, dtype=torch.float64))


def test_separable_rows_do_not_make_probabilities_certain() -> None:
    logs = torch.log_softmax(torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64).repeat(50, 1), dim=1)
    fitted = fit_class_map(logs, torch.tensor([0, 1]).repeat(50))
    surest = float(fitted.log_probabilities(logs).exp().max())
    assert 0.95 < surest < 0.9995


def test_rows_of_weight_0_do_not_count() -> None:
    right, labels = _rows(400, 3)
    weights = torch.ones(400)
    weights[200:] = 0.0
    weighted = fit_class_map(2.0 * right, labels, weights=weights)
    alone = fit_class_map(2.0 * right[:200], labels[:200])
    torch.testing.assert_close(weighted.log_probabilities(right), alone.log_probabilities(right), rtol=0.0, atol=2e-3)


def test_the_derivatives_are_at_zero_where_the_fit_ends() -> None:
    """The least penalised loss, by automatic derivatives of the stated objective."""
    right, labels = _rows(400, 3)
    logs = torch.log_softmax(1.4 * right + torch.tensor([0.5, 0.0, -0.5]), dim=1)
    fitted = fit_class_map(logs, labels)
    weights, shifts = (torch.tensor(part, dtype=torch.float64) for part in (fitted.weights, fitted.intercept))
    # Of t and d with the same sum, those of the least penalty: their derivatives by a common shift cancel.
    common = weights.log().sum() / (3.0 + 1.0 / (0.25**2 * 2.0 * 5.0 * 3.0))
    slope, apart, shifts = (part.clone().requires_grad_() for part in (common, weights.log() - common, shifts))
    loss = torch.nn.functional.cross_entropy(logs * torch.exp(slope + apart) + shifts, labels, reduction="sum")
    penalty = 0.5 * (slope / 0.25).square() + 15.0 * (apart.square().sum() + shifts.square().sum())
    for derivative in torch.autograd.grad(loss + penalty, [slope, apart, shifts]):
        assert float(derivative.abs().max()) < 1e-2


FITTED = ClassMap((1.0, 0.0, 1.1), (0.1, 0.0, -0.1), 0.01)


def test_json() -> None:
    assert ClassMap.from_json(FITTED.to_json()) == FITTED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": [-1.0, 1.0, 1.0]}, r"map\.weights\[0\]: expected greater than or equal to 0"),
        ({"intercept": [0.0]}, r"map\.intercept: expected 3 numbers, one for each class"),
        ({"floor": -1}, r"map\.floor: expected greater than or equal to 0"),
        ({"other": 1}, r"map\.other: the field is not known"),
        ({"weights": ["a"]}, r"map\.weights\[0\]: expected a valid number"),
    ],
)
def test_damaged_json_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ClassMap.from_json(FITTED.to_json() | changes, "map")
