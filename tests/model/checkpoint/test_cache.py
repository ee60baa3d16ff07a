from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.cache import CacheOptions, CheckpointCache, Lease, default_cache
from murho.model.errors import CheckpointError, StorageError

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1_000


def put(cache: CheckpointCache, key: str) -> Lease:
    return cache.put(key, "cars", "1", SIZE, fill_whole)


def fill_whole(directory: Path) -> None:
    (directory / "model").write_bytes(b"x" * SIZE)


def held(cache: CheckpointCache) -> set[str]:
    return {path.name for path in (cache.options.root / "versions").iterdir()}


@pytest.fixture
def cache(tmp_path: Path) -> CheckpointCache:
    return CheckpointCache(CacheOptions(tmp_path, 3 * SIZE))


def test_what_was_put_is_found_under_name_and_version(cache: CheckpointCache) -> None:
    assert cache.get("a", "cars", "1") is None
    lease = put(cache, "a")
    assert lease.directory.parts[-3:] == ("a", "cars", "1")
    found = cache.get("a", "cars", "1")
    assert found is not None
    assert (found.directory / "model").stat().st_size == SIZE


def test_the_least_recently_used_leaves(cache: CheckpointCache) -> None:
    for age, key in enumerate(["a", "b", "c"]):
        put(cache, key).release()
        os.utime(cache.options.root / "versions" / key, (age, age))
    used = cache.get("a", "cars", "1")
    assert used is not None
    used.release()
    put(cache, "d").release()
    assert held(cache) == {"a", "c", "d"}


def test_what_is_in_use_stays_even_beyond_the_bound(cache: CheckpointCache) -> None:
    leases = [put(cache, key) for key in "abcde"]
    assert held(cache) == set("abcde")
    for lease in leases:
        lease.release()
        lease.release()
    put(cache, "f").release()
    assert held(cache) >= {"f"}
    assert len(held(cache)) == 3


def test_a_failed_fetch_leaves_nothing(cache: CheckpointCache) -> None:
    def fail(directory: Path) -> None:
        (directory / "model").write_bytes(b"half")
        raise CheckpointError("cut")

    with pytest.raises(CheckpointError, match="cut"):
        cache.put("a", "cars", "1", SIZE, fail)
    assert held(cache) == set()


def test_left_overs_of_killed_processes_go_and_fetches_under_way_stay(cache: CheckpointCache) -> None:
    put(cache, "a").release()
    versions = cache.options.root / "versions"
    for name in (".fetching-dead", ".removing-dead", ".fetching-new"):
        (versions / name / "cars").mkdir(parents=True)
    for name in (".fetching-dead", ".removing-dead"):
        os.utime(versions / name, (1, 1))
    begun, end = threading.Event(), threading.Event()

    def fill(directory: Path) -> None:
        (directory / "model").write_bytes(b"x")
        os.utime(directory.parents[1], (1, 1))
        begun.set()
        assert end.wait(20)

    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(cache.put, "slow", "cars", "1", 1, fill)
        assert begun.wait(20)
        CheckpointCache(cache.options).tidy()
        end.set()
        slow.result(20).release()
    assert held(cache) == {"a", ".fetching-new", "slow"}


def test_two_that_fetch_the_same_share_what_the_first_has_put(cache: CheckpointCache) -> None:
    meeting = threading.Barrier(2)

    def fill(directory: Path) -> None:
        (directory / "model").write_bytes(b"x")
        meeting.wait(20)

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(cache.put, "a", "cars", "1", 1, fill) for _ in range(2)]
        assert len({each.result(20).directory for each in both}) == 1
    assert held(cache) == {"a"}


def test_many_threads_fetch_and_drop_and_none_finds_a_version_half(tmp_path: Path) -> None:
    options = CacheOptions(tmp_path, 2 * SIZE)

    def work(seed: int) -> None:
        cache = CheckpointCache(options)
        for step in range(40):
            key = "abcd"[(seed + step) % 4]
            lease = cache.get(key, "cars", "1") or put(cache, key)
            assert (lease.directory / "model").stat().st_size == SIZE
            lease.release()

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(work, seed) for seed in range(4)]:
            each.result(60)


def test_a_cache_that_cannot_be_written_is_told_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="MURHO_CHECKPOINT_CACHE"):
        put(CheckpointCache(CacheOptions(tmp_path / "file")), "a")


def test_the_environment_says_where_and_how_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MURHO_CHECKPOINT_CACHE", raising=False)
    assert CacheOptions.from_environment() == CacheOptions(default_cache())
    assert default_cache() == tmp_path / "murho" / "checkpoints"
    monkeypatch.setenv("MURHO_CHECKPOINT_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("MURHO_CHECKPOINT_CACHE_BYTES", "17")
    assert CacheOptions.from_environment() == CacheOptions(tmp_path / "here", 17)
