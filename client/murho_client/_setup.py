"""How a client reaches its service: the checked arguments, and what httpx is told."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import httpx

from murho_client._retry import Deadline
from murho_client._version import __version__

__all__ = ["Setup"]

KEY_VARIABLE = "MURHO_API_KEY"


@dataclass(frozen=True, slots=True)
class Setup:
    """How to reach a service, checked. It doesn't keep the key.

    Attributes:
        url: Address of the service.
        shown: The address for people, without a password.
        timeout: Seconds for each request, with its retries.
        rows: The most rows of one request.
        concurrency: The most requests of one call at a time.
        retries: The most attempts after the first.
    """

    url: httpx.URL
    shown: str
    timeout: float
    rows: int
    concurrency: int
    retries: int

    @classmethod
    def of(cls, url: str, timeout: float, rows: int, concurrency: int, retries: int) -> Setup:
        """The checked arguments of a client.

        Raises:
            ValueError: One of them can't be used.
        """
        try:
            address = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            address = httpx.URL("")
        if address.scheme not in ("http", "https") or not address.host:
            # The address may hold a password, so it isn't repeated.
            raise ValueError("url is no address of a service. It looks like 'http://127.0.0.1:8000'.")
        for name, value, least in (
            ("max_rows_per_request", rows, 1),
            ("max_concurrency", concurrency, 1),
            ("retries", retries, 0),
        ):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; it is a whole number from {least} on.")
        Deadline(timeout)
        shown = str(address.copy_with(username=None, password=None, query=None)).rstrip("/")
        return cls(address, shown, timeout, rows, concurrency, retries)

    def http(self, api_key: str | None) -> dict[str, Any]:
        """Arguments of an httpx client.

        Args:
            api_key: The key; that of the environment (`MURHO_API_KEY`), if there is one there, for None.

        Raises:
            ValueError: The key can't be part of a header.
        """
        headers = {"User-Agent": f"murho-client/{__version__}", "Accept": "application/json"}
        name = "api_key" if api_key is not None else KEY_VARIABLE
        api_key = api_key if api_key is not None else os.environ.get(KEY_VARIABLE) or None
        if api_key is not None:
            if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
                raise ValueError(f"{name} is empty, or has a space, a line break or another character no key has.")
            headers["Authorization"] = f"Bearer {api_key}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=max(20, self.concurrency))
        return {"base_url": self.url, "headers": headers, "limits": limits, "follow_redirects": False}

    def deadline(self, whole: Deadline | None) -> Deadline:
        """The deadline of one request, within that of the whole call."""
        return Deadline(self.timeout, whole)
