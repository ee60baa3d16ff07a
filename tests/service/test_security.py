from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.errors import OptionError
from murho.service.errors import RateLimitError, TooLargeError, UnauthorizedError
from murho.service.security import (
    Buckets,
    Caller,
    Security,
    digest_of,
    make_key,
    parse_line,
    parse_lines,
    read_keys,
)
from murho.service.settings import Settings

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
    limited.authenticate("/predict", bearer(KEY), "")
    with pytest.raises(RateLimitError):
        limited.authenticate("/predict", bearer(KEY), "")
    for _ in range(9):
        limited.authenticate("/predict", bearer(OTHER), "")


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


def test_a_request_is_paid_as_a_whole_and_one_beyond_the_burst_is_too_large() -> None:
    clock = Clock()
    limited = Security(Settings(row_draws_per_second=20_000), Buckets(clock=clock), clock=clock)
    caller = Caller("web")

    def sent(body: float, cost: float) -> None:
        limited.admit(caller, body, requests=0)
        limited.admit(caller, cost - body, requests=0, paid=body)

    sent(60_000, 190_000)
    with pytest.raises(RateLimitError):
        sent(60_000, 190_000)
    clock.now += 8.0  # 170,000 tokens
    with pytest.raises(RateLimitError) as late:
        sent(60_000, 190_000)
    clock.now += late.value.retry_after or 0
    sent(60_000, 190_000)
    clock.now += 60.0
    with pytest.raises(TooLargeError, match=r"410000 row-draws.* at most 200000 at once \(20000 a second"):
        sent(2_000, 410_000)


DIGEST = "ab" * 32


def test_a_line_and_its_key_are_the_same() -> None:
    for line in (f"web:sha256:{DIGEST}", f"ops:sha256:{DIGEST}:admin:outcomes:requests=2.5:cost=1000"):
        assert parse_line(line).line() == line
    key = parse_line(f"ops:sha256:{DIGEST}:cost=1e6:admin")
    assert (key.name, key.admin, key.requests, key.cost) == ("ops", True, None, 1e6)


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"web:md5:{DIGEST}",
        f":sha256:{DIGEST}",
        f"web:sha256:{DIGEST}:root",
        f"web:sha256:{DIGEST}:cost=0",
        f"web:sha256:{DIGEST}:requests=",
    ],
)
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(OptionError):
        parse_line(line)


def test_a_key_stored_by_mistake_is_not_repeated() -> None:
    key = make_key()
    for line in (key, f"web:{key}", f"web:sha256:{key}"):
        with pytest.raises(OptionError) as caught:
            parse_line(line)
        assert key not in str(caught.value)


def test_comments_are_passed_over_and_no_key_is_there_twice() -> None:
    assert [key.name for key in parse_lines(["# keys", "", f"web:sha256:{DIGEST}"])] == ["web"]
    with pytest.raises(OptionError, match="'web' and 'app' are the same key"):
        parse_lines([f"web:sha256:{DIGEST}", f"app:sha256:{DIGEST.upper()}"])


def test_a_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(OptionError, match="can't be read: No such file"):
        read_keys(path)
    path.write_text("# none\n")
    with pytest.raises(OptionError, match="has no key"):
        read_keys(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="UTF-8"):
        read_keys(path)
    path.write_text(f"web:sha256:{digest_of(b'x').hex()}\n")
    assert read_keys(path)[0].digest == digest_of(b"x")
