from __future__ import annotations

import pytest

from murho.service.errors import NotReadyError
from murho.service.http.lifecycle import Lifecycle


def test_predictions_are_counted_until_they_are_answered() -> None:
    lifecycle = Lifecycle()
    lifecycle.enter()
    lifecycle.enter()
    assert lifecycle.in_flight == 2
    lifecycle.leave()
    assert lifecycle.in_flight == 1


def test_while_draining_the_service_is_not_ready_but_takes_predictions() -> None:
    lifecycle = Lifecycle()
    lifecycle.draining = True
    with pytest.raises(NotReadyError, match="shutting down"):
        lifecycle.require_not_draining()
    lifecycle.enter()
    assert lifecycle.in_flight == 1


def test_while_closing_no_prediction_is_taken() -> None:
    lifecycle = Lifecycle()
    lifecycle.closing = True
    with pytest.raises(NotReadyError) as caught:
        lifecycle.enter()
    assert caught.value.retry_after is not None
    assert lifecycle.in_flight == 0
