from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from murho.model.errors import OptionError
from murho.service.security import LEAST_KEY_LENGTH, digest_of, make_key, parse_line, parse_lines, read_keys

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "ab" * 32


def test_keys_are_long_random_and_different() -> None:
    keys = {make_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("murho_") and len(key) >= LEAST_KEY_LENGTH + 10 for key in keys)


def test_a_line_and_its_key_are_the_same() -> None:
    for line in (f"web:sha256:{DIGEST}", f"ops:sha256:{DIGEST}:admin:requests=2.5:cost=1000"):
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
