from __future__ import annotations

import gzip
import zlib

import pytest

from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.memory import accepted_coding, decompressed

BODY = b"3000,100,true\n" * 200


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_in_both_codings_are_read_within_a_limit(coding: str, pack: type[bytes]) -> None:
    packed = pack(BODY)
    assert decompressed(packed, coding.upper(), len(BODY)) == BODY
    with pytest.raises(TooLargeError):
        decompressed(packed, coding, len(BODY) - 1)
    for broken in (packed[:-1], packed + b"x", b"x", b""):
        with pytest.raises(BadInputError, match=coding):
            decompressed(broken, coding, 10**6)


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", None),
        ("gzip, deflate, br", "gzip"),
        ("deflate", "deflate"),
        ("gzip;q=0, deflate;q=0.5", "deflate"),
        ("gzip; q=0.000", None),
        ("identity", None),
    ],
)
def test_the_first_coding_that_a_client_accepts(header: str, coding: str | None) -> None:
    assert accepted_coding(header) == coding
