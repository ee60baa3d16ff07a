from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.object_store import CheckpointCache, default_cache
from murho.model.errors import CheckpointError, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.stores import Lease

SIZE = 1_000


def put(cache: CheckpointCache, key: str) -> Lease:
    return cache.obtain(key, "cars/1", SIZE, fill_whole, whole)


def whole(directory: Path) -> None:
    if (directory / "model").stat().st_size != SIZE:
        raise CheckpointError("cut")


def found(cache: CheckpointCache, key: str) -> Lease:
    return cache.obtain(key, "cars/1", SIZE, must_not_be_filled, whole)


def must_not_be_filled(directory: Path) -> None:
    raise AssertionError(directory)


def fill_whole(directory: Path) -> None:
    (directory / "model").write_bytes(b"x" * SIZE)


def held(cache: CheckpointCache) -> set[str]:
    return {path.name for path in (cache.root / "versions").iterdir()}


@pytest.fixture
def cache(tmp_path: Path) -> CheckpointCache:
    return CheckpointCache(tmp_path, 3 * SIZE)


def test_what_was_put_is_found_under_name_and_version(cache: CheckpointCache) -> None:
    lease = put(cache, "a")
    assert lease.directory.parts[-3:] == ("a", "cars", "1")
    assert (found(cache, "a").directory / "model").stat().st_size == SIZE


def test_what_was_damaged_is_fetched_again(cache: CheckpointCache) -> None:
    (put(cache, "a").directory / "model").write_bytes(b"half")
    assert (put(cache, "a").directory / "model").stat().st_size == SIZE


def test_the_least_recently_used_leaves(cache: CheckpointCache) -> None:
    for age, key in enumerate(["a", "b", "c"]):
        put(cache, key)
        os.utime(cache.root / "versions" / key, (age, age))
    found(cache, "a")
    put(cache, "d")
    assert held(cache) == {"a", "c", "d"}


def test_what_is_in_use_stays_even_beyond_the_bound(cache: CheckpointCache) -> None:
    leases = [put(cache, key) for key in "abcde"]
    assert held(cache) == set("abcde")
    leases.clear()
    put(cache, "f")
    assert held(cache) >= {"f"}
    assert len(held(cache)) == 3


def test_a_failed_fetch_leaves_nothing(cache: CheckpointCache) -> None:
    def fail(directory: Path) -> None:
        (directory / "model").write_bytes(b"half")
        raise CheckpointError("cut")

    with pytest.raises(CheckpointError, match="cut"):
        cache.obtain("a", "cars/1", SIZE, fail, whole)
    assert held(cache) == set()


def test_left_overs_of_killed_processes_go_and_fetches_under_way_stay(cache: CheckpointCache, tmp_path: Path) -> None:
    put(cache, "a")
    versions = cache.root / "versions"
    for name in (".fetching-dead", ".fetching-new"):
        (versions / name / "cars").mkdir(parents=True)
    os.utime(versions / ".fetching-dead", (1, 1))
    begun, end = threading.Event(), threading.Event()

    def fill(directory: Path) -> None:
        fill_whole(directory)
        os.utime(directory.parents[1], (1, 1))
        begun.set()
        assert end.wait(20)

    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(cache.obtain, "slow", "cars/1", 1, fill, whole)
        assert begun.wait(20)
        put(CheckpointCache(tmp_path), "b")
        end.set()
        slow.result(20)
    assert held(cache) == {"a", "b", ".fetching-new", "slow"}


def test_two_that_fetch_the_same_share_what_the_first_has_put(cache: CheckpointCache) -> None:
    meeting = threading.Barrier(2)

    def fill(directory: Path) -> None:
        fill_whole(directory)
        meeting.wait(20)

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(cache.obtain, "a", "cars/1", 1, fill, whole) for _ in range(2)]
        assert len({each.result(20).directory for each in both}) == 1
    assert held(cache) == {"a"}


def test_many_threads_fetch_and_drop_and_none_finds_a_version_half(tmp_path: Path) -> None:
    def work(seed: int) -> None:
        cache = CheckpointCache(tmp_path, 2 * SIZE)
        for step in range(40):
            key = "abcd"[(seed + step) % 4]
            lease = put(cache, key)
            assert (lease.directory / "model").stat().st_size == SIZE
            del lease

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(work, seed) for seed in range(4)]:
            each.result(60)


def test_a_cache_that_cannot_be_written_is_told_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="MURHO_CHECKPOINT_CACHE"):
        put(CheckpointCache(tmp_path / "file"), "a")


def test_the_environment_says_where_and_how_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MURHO_CHECKPOINT_CACHE", raising=False)
    monkeypatch.delenv("MURHO_CHECKPOINT_CACHE_BYTES", raising=False)
    assert CheckpointCache() == CheckpointCache(default_cache(), 10 * 2**30)
    assert default_cache() == tmp_path / "murho" / "checkpoints"
    monkeypatch.setenv("MURHO_CHECKPOINT_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("MURHO_CHECKPOINT_CACHE_BYTES", "17")
    assert CheckpointCache() == CheckpointCache(tmp_path / "here", 17)
