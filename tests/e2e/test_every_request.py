"""Whatever the description of the service allows, and much that it does not, is never answered with a 5xx."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from murho.service.errors import is_inference_path
from tests.e2e.support import Service
from tests.e2e.traffic import PROBLEM

CASES = int(os.environ.get("SCHEMATHESIS_CASES", "20000"))
"""How many requests are made up."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_request_at_all_makes_the_service_fail(busy: Service) -> None:
    document = busy.client.get("/openapi.json").json()
    schema: Any = schemathesis.openapi.from_dict(document)
    operations = [result.ok() for result in schema.get_all_operations()]
    modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
    strategies = [operation.as_strategy(generation_mode=mode) for operation in operations for mode in modes]
    strategy: st.SearchStrategy[Any] = st.one_of(strategies)
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def send(case: Any) -> None:
        response = case.call(base_url=busy.address, timeout=60.0)
        statuses[response.status_code] += 1
        assert response.status_code < 500, (case.as_curl_command(), response.text[:1000])
        if response.status_code >= 400:
            if is_inference_path(urlsplit(str(response.request.url)).path):
                assert set(response.json()) == {"error"}, (case.as_curl_command(), response.text[:1000])
                return
            assert PROBLEM in response.headers["content-type"], (case.as_curl_command(), response.text[:1000])

    send()
    assert sum(statuses.values()) >= CASES
    assert busy.process.poll() is None
