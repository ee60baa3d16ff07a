from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fsspec.registry import _registry as loaded_file_systems

from murho.model.checkpoint.stores import DirectoryStore, directory_at, is_url, place_of, shown_place, store_at
from murho.model.errors import CheckpointError, OptionError


@pytest.mark.parametrize("url", ["s3://bucket/models", "memory://here", "gs://b", "abfs://c@account.example/x"])
def test_a_url_stays_a_text_without_a_slash_at_its_end(url: str) -> None:
    assert is_url(url)
    assert place_of(f"{url}/") == url
    assert shown_place(url) == url


@pytest.mark.parametrize("path", ["checkpoints", "/a/b", "c://x", "s3:/bucket", "./s3", "a b://c"])
def test_anything_else_is_a_path(path: str) -> None:
    assert not is_url(path)
    assert place_of(path) == Path(path)
    assert isinstance(store_at(path), DirectoryStore)


def test_a_file_url_is_the_directory_that_it_names() -> None:
    assert place_of("file:///tmp/my%20models") == Path("/tmp/my models")  # noqa: S108 - nothing is written


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError, match="password") as refused:
        place_of("sftp://me:secret@host/models")
    assert "secret" not in str(refused.value)


def test_what_writes_to_a_disk_alone_says_what_to_do_with_a_url() -> None:
    assert directory_at("checkpoints") == Path("checkpoints")
    with pytest.raises(CheckpointError, match="murho publish NAME/VERSION s3://bucket/models"):
        directory_at("s3://bucket/models")


def test_a_library_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for protocol, library in (("gs", "gcsfs"), ("az", "adlfs")):
        monkeypatch.delitem(loaded_file_systems, protocol, raising=False)  # another test may have used it
        monkeypatch.setitem(sys.modules, library, None)  # what is imported then is not found
    with pytest.raises(OptionError, match=r"pip install 'murho\[gs\]'"):
        store_at("gs://bucket/models")
    with pytest.raises(OptionError, match=r"pip install 'murho\[az\]'"):
        store_at("az://bucket/models")


def test_an_unknown_protocol_is_told() -> None:
    with pytest.raises(OptionError, match="carrier-pigeon"):
        store_at("carrier-pigeon://bucket/models")
