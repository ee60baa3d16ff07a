from __future__ import annotations

import socket

import pytest

from murho.service.errors import ServiceError
from murho.service.server import address_of, listen


def test_a_port_of_ones_own_choice_is_found() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address_of(listening) == f"http://127.0.0.1:{port}"


def test_the_address_of_every_interface_is_this_machine() -> None:
    with listen("0.0.0.0", 0) as listening:  # noqa: S104 - for a moment, without a server behind it
        assert address_of(listening).startswith("http://localhost:")


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"Port {port} of 127.0.0.1 is in use"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host"])
def test_an_address_of_another_machine_is_told(host: str) -> None:
    with pytest.raises(ServiceError, match="--host"):
        listen(host, 0)
