"""The manifests fit Kubernetes' schemas, and say of paths, ports, settings and users what the service and image say."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from murho.service.settings import Settings, read_configuration
from tests.deploy.helm_templates import TemplateError, render_chart
from tests.deploy.support import (
    CHART,
    EVERYTHING,
    KEYS,
    KUBERNETES,
    LITTLE,
    STORAGE,
    dockerfile,
    in_chart,
    in_folder,
    of_kind,
)
from tests.service.support import AppClient, FakeModel, make_client
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

CUSTOM = ("monitoring.coreos.com", "serving.kserve.io")
"""Groups of resources that Kubernetes has no schemas of: those of the Prometheus operator and KServe."""
NEWEST, OLDEST = kubernetes_validate.latest_version(), "1.27"
SETS = {
    **{f"manifests in {name}": in_folder(name) for name in ("base", "monitoring", "kserve")},
    "chart as it is": in_chart({}),
    "chart with everything": in_chart(EVERYTHING),
    "chart with little": in_chart(LITTLE),
    "chart with a storage": in_chart(STORAGE),
}
PODS = {
    name: of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    for name, objects in SETS.items()
    if any(item["kind"] == "Deployment" for item in objects)
}
RUNTIME = of_kind(SETS["manifests in kserve"], "ServingRuntime")["spec"]
PODS["KServe"] = {**of_kind(SETS["manifests in kserve"], "InferenceService")["spec"]["predictor"], **RUNTIME}


@pytest.fixture(scope="module")
def service() -> Iterator[AppClient]:
    with make_client(FakeModel()) as client:
        yield client


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(pod)["env"]}


@pytest.mark.parametrize(("name", "version"), [*((name, NEWEST) for name in SETS), ("manifests in base", OLDEST)])
def test_every_object_fits_the_schemas(name: str, version: str) -> None:
    for item in SETS[name]:
        if item["apiVersion"].partition("/")[0] not in CUSTOM:
            kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.parametrize("name", ["base", "monitoring", "kserve"])
def test_kustomize_builds_what_the_files_say(name: str) -> None:
    command = ["kubectl", "kustomize", str(KUBERNETES / name)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def named(objects: Any) -> dict[tuple[str, str], Any]:
        return {(item["kind"], item["metadata"]["name"]): item for item in objects}

    assert named(yaml.safe_load_all(built)) == named(in_folder(name))


@pytest.mark.parametrize("name", PODS)
def test_the_environment_is_read_by_the_service(name: str) -> None:
    given = environment(PODS[name])
    values = read_configuration(
        {}, environment={key: text for key, text in given.items() if key != "MURHO_API_KEYS_FILE"}
    )
    assert values.settings.log_format == given.get("MURHO_LOG_FORMAT", "auto")
    assert {key.removeprefix("MURHO_").lower() for key in given} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", PODS)
def test_the_drain_fits_into_the_grace_period(name: str) -> None:
    given, pod = environment(PODS[name]), PODS[name]
    drain = float(given["MURHO_DRAIN_DELAY"]) + float(given["MURHO_DRAIN_GRACE"])
    assert pod["terminationGracePeriodSeconds"] >= drain + 5
    # Not ready must be seen, and told to all who send requests, while it still serves.
    probe = container(pod)["readinessProbe"]
    if name != "chart with little":
        assert float(given["MURHO_DRAIN_DELAY"]) >= probe["periodSeconds"] * probe["failureThreshold"]
        assert float(given["MURHO_DRAIN_GRACE"]) >= Settings().request_timeout


@pytest.mark.parametrize("name", PODS)
def test_probes_ask_paths_that_answer_without_a_key_at_the_images_port(name: str, service: AppClient) -> None:
    main = container(PODS[name])
    (port,) = main["ports"]
    assert str(port["containerPort"]) == dockerfile("EXPOSE")
    with make_client(FakeModel(), api_keys=KEYS[:1]) as locked:
        assert locked.get("/models").status_code == 401
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = main[kind]["httpGet"]
            assert probe["port"] in (port["name"], port["containerPort"])
            assert service.get(probe["path"]).status_code == 200
            assert locked.get(probe["path"]).status_code == 200


@pytest.mark.parametrize("name", PODS)
def test_the_pod_is_restricted_and_runs_as_the_images_user(name: str) -> None:
    pod, main = PODS[name], container(PODS[name])
    both = {**pod.get("securityContext", {}), **main["securityContext"]}
    assert f"{both['runAsUser']}:{both['runAsGroup']}" == dockerfile("USER")
    assert both["runAsNonRoot"] is True
    assert both["readOnlyRootFilesystem"] is True
    assert both["allowPrivilegeEscalation"] is False
    assert both["capabilities"] == {"drop": ["ALL"]}
    assert both["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    writable = {item["mountPath"] for item in main["volumeMounts"] if not item.get("readOnly")}
    assert writable == {"/tmp"}  # noqa: S108
    assert main["args"] == ["serve"]


def test_checkpoints_are_mounted_where_the_image_looks_for_them() -> None:
    image = "MURHO_CHECKPOINTS=/checkpoints"
    assert image in (ROOT / "Dockerfile").read_text()
    for name, pod in PODS.items():
        places = {item["mountPath"] for item in container(pod)["volumeMounts"]}
        elsewhere = environment(pod).get("MURHO_CHECKPOINTS")
        assert "/checkpoints" in places or elsewhere in ("/mnt/models", "s3://bucket/prefix"), name


def test_with_a_storage_there_is_no_claim() -> None:
    assert "PersistentVolumeClaim" not in {item["kind"] for item in SETS["chart with a storage"]}
    assert "checkpoints" not in {volume["name"] for volume in PODS["chart with a storage"]["volumes"]}


@pytest.mark.parametrize("name", PODS)
def test_the_temporary_files_of_large_tables_find_room(name: str) -> None:
    (volume,) = (volume for volume in PODS[name]["volumes"] if volume["name"] == "tmp")
    size = volume["emptyDir"]["sizeLimit"]
    assert size.endswith("Mi")
    # A pod that takes more is evicted. The rest is for compiled code.
    assert int(size.removesuffix("Mi")) * 2**20 >= Settings().spool_bytes + 200 * 2**20


@pytest.mark.parametrize("name", [name for name in PODS if name in SETS])
def test_services_policies_and_budgets_select_the_pods(name: str) -> None:
    objects = SETS[name]
    labels = of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for item in objects:
        spec = item.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector.get("matchLabels", selector)
        assert wanted.items() <= labels.items(), item["kind"]
    port = of_kind(objects, "Service")["spec"]["ports"][0]
    assert port["targetPort"] == container(PODS[name])["ports"][0]["name"]


def test_the_chart_as_it_is_makes_what_the_manifests_say() -> None:
    """But for names and labels, which a release has of its own."""

    def plain(objects: list[dict[str, Any]]) -> dict[str, Any]:
        texts = {}
        for item in objects:
            spec = json.loads(json.dumps(item["spec"]).replace("scoring", "murho"))
            texts[item["kind"]] = without_instance(spec)
        return texts

    chart, manifests = plain(in_chart({})), plain(in_folder("base"))
    for spec in (chart, manifests):
        main = spec["Deployment"]["template"]["spec"]["containers"][0]
        main["env"] = sorted(main["env"], key=lambda item: item["name"])
        main.pop("imagePullPolicy", None)
    chart["Service"].pop("type")
    chart["NetworkPolicy"]["ingress"][0]["ports"] = manifests["NetworkPolicy"]["ingress"][0]["ports"]
    assert chart == manifests


def without_instance(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_instance(item) for key, item in value.items() if key != "app.kubernetes.io/instance"}
    return [without_instance(item) for item in value] if isinstance(value, list) else value


def test_keys_in_the_values_become_a_secret_that_the_pod_mounts() -> None:
    objects = SETS["chart with everything"]
    secret = of_kind(objects, "Secret")
    assert secret["stringData"]["keys"].split() == KEYS
    volumes = {item["name"]: item for item in PODS["chart with everything"]["volumes"]}
    assert volumes["keys"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert environment(PODS["chart with everything"])["MURHO_API_KEYS_FILE"] == "/etc/murho/keys/keys"
    assert "MURHO_API_KEYS_FILE" not in environment(PODS["chart with little"])


def test_keys_that_are_nowhere_are_an_error() -> None:
    with pytest.raises(TemplateError, match="murho key NAME"):
        render_chart(CHART, {"keys": {"existingSecret": ""}})


def test_the_schema_of_the_values_takes_them_and_refuses_slips() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    for changes in (EVERYTHING, LITTLE, STORAGE):
        jsonschema.validate(changes | {"settings": {"drain_delay": "1", "drain_grace": "2"}}, schema)
    slips: tuple[dict[str, Any], ...] = (
        {"image": {"name": "murho"}},
        {"setings": {}},
        {"settings": {**values["settings"], "samples": 128}},
        {"keys": {"lines": ["dashboard:the-key-itself"]}},
    )
    for slip in slips:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(slip, schema)
    assert set(values["settings"]) <= set(Settings.model_fields)
