"""Scores of class probabilities: known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from benchmarks.mnist_parts.scores import class_scores, doubt, ranked_auc


def test_scores_of_known_probabilities() -> None:
    probabilities = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1]])
    scores = class_scores(probabilities, np.array([0, 1, 1, 0]))
    assert scores["error"] == 0.25
    assert scores["log_loss"] == pytest.approx(-np.log([0.8, 0.4, 0.7, 0.9]).mean())
    assert scores["auc"] == 1.0
    assert scores["ece"] == pytest.approx((0.2 + 0.6 + 0.3 + 0.1) / 4)


def test_auc_counts_ties_half() -> None:
    assert ranked_auc(np.array([0.1, 0.5, 0.5, 0.9]), np.array([False, True, False, True])) == pytest.approx(3.5 / 4)


def test_draws_that_agree_have_no_mutual_information() -> None:
    entropy, information = doubt(torch.log(torch.tensor([[[0.5, 0.5]], [[0.5, 0.5]]])))
    assert entropy[0] == pytest.approx(math.log(2.0))
    assert information[0] == pytest.approx(0.0, abs=1e-6)


def test_sure_draws_that_disagree_have_nothing_else() -> None:
    entropy, information = doubt(torch.log(torch.tensor([[[1.0 - 1e-6, 1e-6]], [[1e-6, 1.0 - 1e-6]]])))
    assert entropy[0] == pytest.approx(math.log(2.0))
    assert information[0] == pytest.approx(math.log(2.0), abs=1e-3)
