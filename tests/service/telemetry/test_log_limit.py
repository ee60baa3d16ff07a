from __future__ import annotations

from murho.service.telemetry.log import LogLimit


def test_lines_above_the_limit_are_held_back_and_counted() -> None:
    now = [0.0]
    limit = LogLimit(2, 10.0, clock=lambda: now[0])
    assert [limit.held_back() for _ in range(5)] == [0, 0, None, None, None]
    now[0] = 9.9
    assert limit.held_back() is None
    now[0] = 10.0
    assert [limit.held_back() for _ in range(3)] == [4, 0, None]
