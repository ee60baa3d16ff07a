"""Emulators of Google Cloud Storage and of Azure Blob Storage on loopback, as far as they are installed."""

import gc
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest

CLOUDS = ("gs", "az")
CONTAINER = "bucket"
ACCOUNT = "devstoreaccount1"
# Azurite's account for everybody, which its documentation prints.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Cloud:
    """A server with one bucket.

    Attributes:
        url: The URL of the bucket.
        port: The server's port.
        kind: ``gs`` or ``az``.
    """

    kind: Literal["gs", "az"]
    port: int

    @property
    def url(self) -> str:
        return f"{self.kind}://{CONTAINER}"

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return the variables by which the storage's library finds the server, or a proxy before it."""
        address = f"http://127.0.0.1:{port or self.port}"
        if self.kind == "gs":
            # Without a guess at the kind of bucket, which asks Google.
            return {"STORAGE_EMULATOR_HOST": address, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"{account};BlobEndpoint={address}/{ACCOUNT};"}


@contextmanager
def cloud_server(kind: str, directory: Path) -> Iterator[Cloud]:
    """Start a server; it keeps its objects in memory. Skip the test where the server is not installed."""
    if kind == "gs":
        with _google() as port:
            yield Cloud("gs", port)
    else:
        with _azure(directory) as port:
            yield Cloud("az", port)


@contextmanager
def in_cloud_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let this process find a server."""
    with mock.patch.dict("os.environ", variables):
        yield
        gc.collect()


@contextmanager
def _google() -> Iterator[int]:
    if find_spec("gcsfs") is None or find_spec("gcp_storage_emulator") is None:
        pytest.skip("pip install -c constraints.txt gcsfs gcp-storage-emulator")
    from http.server import ThreadingHTTPServer

    from gcp_storage_emulator import server as emulator
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects

    def exclusive(upload: Any) -> Any:
        """Return an upload that keeps the one precondition that Murho sets; the emulator knows none."""

        def insert(request: Any, response: Any, storage: Any) -> None:
            if request.query.get("ifGenerationMatch") == ["0"]:
                with suppress(NotFound):
                    storage.get_file_obj(request.params["bucket_name"], _name_of(request))
                    response.status = HTTPStatus.PRECONDITION_FAILED
                    return
            upload(request, response, storage)

        return insert

    with (
        mock.patch.object(emulator.server, "HTTPServer", ThreadingHTTPServer),
        mock.patch.object(objects, "_multipart_upload", exclusive(objects._multipart_upload)),
        mock.patch.object(objects, "_media_upload", exclusive(objects._media_upload)),
        emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket=CONTAINER) as server,
    ):
        yield server._api._httpd.server_address[1]


def _name_of(request: Any) -> str:
    if "name" in request.query:
        return str(request.query["name"][0])
    return str(request.data["meta"]["name"])


@contextmanager
def _azure(directory: Path) -> Iterator[int]:
    program = shutil.which("azurite-blob")
    if find_spec("adlfs") is None or program is None:
        pytest.skip("pip install -c constraints.txt adlfs; npm install --global azurite")
    command = [program, "--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    log = directory / "azurite.log"
    with log.open("wb") as file, subprocess.Popen(command, cwd=directory, stdout=file, stderr=file) as process:
        try:
            port = _port_in(log, process)
            _make_container(port)
            yield port
        finally:
            process.terminate()


def _port_in(log: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + 60.0
    while process.poll() is None and time.monotonic() < end:
        if found := re.search(r"successfully listens on http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _make_container(port: int) -> None:
    from azure.storage.blob import BlobServiceClient

    text = Cloud("az", port).environment()["AZURE_STORAGE_CONNECTION_STRING"]
    with BlobServiceClient.from_connection_string(text) as service:
        service.create_container(CONTAINER)
