from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.errors import OptionError
from murho.service.errors import RateLimitError, UnauthorizedError
from murho.service.security import Buckets, Caller, Security, digest_of, make_key
from murho.service.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

KEY, ADMIN, OTHER = "k" * 43, "a" * 43, "o" * 43


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stored(name: str, key: str, more: str = "") -> str:
    return f"{name}:sha256:{digest_of(key.encode()).hex()}{more}"


def security(clock: Clock | None = None, **settings: Any) -> Security:
    settings.setdefault("api_keys", (stored("web", KEY), stored("ops", ADMIN, ":admin")))
    return Security(Settings(**settings), clock=clock or Clock())


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), (b"authorization", b"Bearer " + key.encode())]


def test_without_keys_everybody_may_do_everything() -> None:
    open_to_all = Security(Settings())
    assert open_to_all.caller_of(bearer("whatever"), "10.0.0.1") == Caller("10.0.0.1", admin=True)
    assert open_to_all.is_open("/models")
    open_to_all.require_admin(open_to_all.caller_of([], "10.0.0.1"))


def test_a_key_names_its_caller() -> None:
    guarded = security()
    assert guarded.caller_of(bearer(KEY), "10.0.0.1").name == "web"
    assert guarded.caller_of([(b"x-api-key", ADMIN.encode())], "10.0.0.1") == Caller("ops", admin=True)
    assert guarded.caller_of([(b"authorization", b"bearer  " + KEY.encode())], "").name == "web"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([], "needs an API key"),
        (bearer(OTHER), "isn't one of"),
        (bearer("x" * 5000), "isn't one of"),
        (bearer("short"), "shorter than 32"),
        ([(b"authorization", b"Basic " + KEY.encode())], "kind Bearer"),
        ([*bearer(KEY), (b"x-api-key", ADMIN.encode())], "more than one"),
    ],
)
def test_others_are_refused_and_their_key_is_not_repeated(headers: list[tuple[bytes, bytes]], message: str) -> None:
    with pytest.raises(UnauthorizedError, match=message) as caught:
        security().caller_of(headers, "10.0.0.1")
    assert not any(value.decode("latin-1") in str(caught.value) for _, value in headers[1:] if len(value) > 7)


def test_the_hash_of_a_short_key_opens_nothing() -> None:
    with pytest.raises(UnauthorizedError, match="shorter"):
        security(api_keys=(stored("web", "secret"),)).caller_of(bearer("secret"), "")


def test_a_key_may_have_limits_of_its_own() -> None:
    limited = security(api_keys=(stored("slow", KEY, ":requests=1"), stored("web", OTHER)), burst_seconds=1)
    limited.admitted("/predict", bearer(KEY), "")
    with pytest.raises(RateLimitError):
        limited.admitted("/predict", bearer(KEY), "")
    for _ in range(9):
        limited.admitted("/predict", bearer(OTHER), "")


def test_a_changed_file_is_read_again_and_a_bad_one_is_not(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    path.write_text(stored("web", KEY))
    guarded = Security(Settings(api_keys_file=path), clock=clock)
    assert guarded.caller_of(bearer(KEY), "").name == "web"
    path.write_text(stored("new", OTHER) + "\n" + stored("web", KEY))
    clock.now += 2
    assert guarded.caller_of(bearer(OTHER), "").name == "new"
    path.write_text("")
    clock.now += 2
    assert guarded.caller_of(bearer(OTHER), "").name == "new"
    path.unlink()
    clock.now += 2
    assert guarded.caller_of(bearer(OTHER), "").name == "new"
    path.write_text(stored("last", ADMIN))
    os.utime(path, (1, 1))
    guarded.reload()
    assert guarded.caller_of(bearer(ADMIN), "").name == "last"
    with pytest.raises(UnauthorizedError):
        guarded.caller_of(bearer(OTHER), "")


def test_a_service_does_not_start_without_the_keys_it_is_told_to_have(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can't be read"):
        Security(Settings(api_keys_file=tmp_path / "none"))
    with pytest.raises(OptionError, match="is stored as"):
        Security(Settings(api_keys=("web:" + make_key(),)))


def test_callers_are_bounded() -> None:
    clock = Clock()
    buckets = Buckets(clock=clock, sets=1)
    for caller in "abcdefghi":
        clock.now += 0.01
        assert buckets.take(caller, 1, rate=1, burst=1) == 0
    assert buckets.take("i", 1, rate=1, burst=1) > 0
    assert buckets.take("b", 1, rate=1, burst=1) > 0
    assert buckets.take("a", 1, rate=1, burst=1) == 0  # the one that asked longest ago was forgotten


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0.01, 50)), max_size=60))
def test_nobody_gets_more_than_the_rate(steps: list[tuple[float, float]]) -> None:
    clock = Clock()
    buckets = Buckets(clock=clock)
    begin, taken, last = clock.now, 0.0, 0.0
    for seconds, amount in steps:
        clock.now += seconds
        wait = buckets.take("a", amount, rate=5, burst=10)
        if wait == 0:
            taken, last = taken + amount, amount
        else:
            clock.now += wait
            assert buckets.take("a", amount, rate=5, burst=10) == 0
            taken, last = taken + amount, amount
    # All but the last is paid for, beyond the burst.
    assert taken - last <= 10 + 5 * (clock.now - begin) + 1e-6


def test_requests_and_work_are_limited_for_each_caller() -> None:
    clock = Clock()
    limited = security(clock, requests_per_second=2, row_draws_per_second=100, burst_seconds=1)
    web, ops = Caller("web"), Caller("ops")
    limited.admit(web)
    limited.admit(web)
    with pytest.raises(RateLimitError, match="2 requests a second") as caught:
        limited.admit(web)
    assert caught.value.retry_after == 1
    limited.admit(ops, 1000)
    with pytest.raises(RateLimitError, match="100 row-draws") as caught:
        limited.admit(ops, 50, requests=0)
    assert caught.value.retry_after == 10
    clock.now += 10
    limited.admit(ops, 50, requests=0)
