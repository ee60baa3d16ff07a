from __future__ import annotations

import pytest

from murho.service.errors import NotReadyError
from murho.service.lifecycle import Lifecycle


def test_predictions_are_counted_also_when_they_fail() -> None:
    lifecycle = Lifecycle()

    def fail() -> None:
        with lifecycle.prediction():
            assert lifecycle.in_flight == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lifecycle.in_flight == 0


def test_while_draining_the_service_is_not_ready_but_takes_predictions() -> None:
    lifecycle = Lifecycle()
    lifecycle.draining = True
    with pytest.raises(NotReadyError, match="shutting down"):
        lifecycle.require_not_draining()
    with lifecycle.prediction():
        assert lifecycle.in_flight == 1


def test_while_closing_no_prediction_is_taken() -> None:
    lifecycle = Lifecycle()
    lifecycle.closing = True
    with pytest.raises(NotReadyError) as caught, lifecycle.prediction():
        pass
    assert caught.value.retry_after is not None
    assert lifecycle.in_flight == 0
