"""The files under docs/deploy are valid, name pinned images, hold no secret, and configure what this version reads."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from support.prometheus import needs_promtool
from wiserouter.stores.open import open_engine

FOLDER = Path(__file__).parents[2] / "docs" / "deploy"
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*")
SECRETS = {"LITELLM_MASTER_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "REDIS_PASSWORD"}

yaml = pytest.importorskip("yaml")


def compose():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def objects():
    """Return the objects of Kubernetes by kind and name."""
    found = [*yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pods():
    """Return the templates of pods by the kind that makes them."""
    return {kind: one["spec"]["template"] for (kind, _), one in objects().items() if "template" in one.get("spec", {})}


def containers():
    """Return what each pod is made of, likewise."""
    return {kind: template["spec"] for kind, template in pods().items()}


def interpolated(text):
    """Return text of a compose file with its variables in place."""
    return re.sub(r"\$\{(\w+)(:\?[^}]*)?\}", lambda found: f"value-of-{found[1]}", text)


def environments():
    """Return the environment of the proxy in both deployments."""
    of_compose = {name: interpolated(value) for name, value in compose()["services"]["proxy"]["environment"].items()}
    of_kubernetes = {}
    for one in containers()["Deployment"]["containers"][0]["env"]:
        value = one.get("value") or f"value-of-{one['valueFrom']['secretKeyRef']['key']}"
        of_kubernetes[one["name"]] = re.sub(r"\$\((\w+)\)", lambda found: of_kubernetes[found[1]], value)
    return of_compose, of_kubernetes


def test_compose_is_valid():
    models = pytest.importorskip("compose_pydantic.models")
    given = compose()
    assert {"environment"} == given["secrets"]["litellm_master_key"].keys()
    given["secrets"]["litellm_master_key"] = {"file": "key"}  # the models are older than secrets of the environment
    models.ComposeSpecification.model_validate(given)


def test_compose_hangs_together():
    services = compose()["services"]
    for service in services.values():
        assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in compose()["volumes"]
    assert all(name in compose()["secrets"] for one in services.values() for name in one.get("secrets", ()))
    build = services["proxy"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).is_file()
    options = services["proxy"]["command"]
    assert int(options[options.index("--timeout_worker_healthcheck") + 1]) >= 60  # four workers load at once
    assert "--num_workers" in options
    assert services["proxy"]["depends_on"]["redis"] == {"condition": "service_healthy"}


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_is_valid(version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for one in objects().values():
        kubernetes_validate.validate(one, version, strict=True)


def test_kubernetes_hangs_together():
    everything = objects()
    by_name = {name: everything[kind, name] for kind, name in everything if kind in pods()}
    for (kind, name), one in everything.items():
        if kind == "Service":
            template, (port,) = by_name[name]["spec"]["template"], one["spec"]["ports"]
            assert one["spec"]["selector"].items() <= template["metadata"]["labels"].items()
            assert port["targetPort"] in {at["name"] for at in template["spec"]["containers"][0]["ports"]}
        elif kind != "ConfigMap":
            assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]
    assert everything["StatefulSet", "wiserouter-redis"]["spec"]["serviceName"] == "wiserouter-redis"
    proxy = everything["Deployment", "wiserouter-proxy"]["spec"]
    assert proxy["replicas"] == 3
    (container,) = proxy["template"]["spec"]["containers"]
    assert proxy["template"]["spec"]["volumes"][0]["configMap"]["name"] == "wiserouter-config"
    assert container["args"][1] == f"{container['volumeMounts'][0]['mountPath']}/config.yaml"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] == "/health/liveliness"


def test_every_container_has_probes_and_resources():
    for pod in containers().values():
        for container in pod["containers"]:
            assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()
            assert {"requests", "limits"} == container["resources"].keys()
        assert pod["securityContext"]["runAsNonRoot"]


def test_images_are_pinned():
    images = [service["image"] for service in compose()["services"].values()]
    images += [container["image"] for pod in containers().values() for container in pod["containers"]]
    dockerfile = (FOLDER / "Dockerfile").read_text()
    images += re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert len(images) == 7
    for image in images:
        assert PINNED.fullmatch(image), image
    assert set(images[:2]) == set(images[4:6])
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())
    assert images[0] == f"wiserouter-proxy:{project['project']['version']}"
    litellm = re.search(r'"litellm\[proxy\](==[\d.]+)"', dockerfile)[1]
    assert f"litellm{litellm}" in project["tool"]["uv"]["constraint-dependencies"]  # what the tests run with


def test_the_image_has_what_the_build_needs():
    root = FOLDER.parents[1]
    copied = re.findall(r"^COPY (.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert all((root / name).exists() for names in copied for name in names.split())


def test_redis_keeps_what_it_is_told():
    (redis,) = containers()["StatefulSet"]["containers"]
    for command in (compose()["services"]["redis"]["command"], redis["args"]):
        settings = dict(zip(command[1::2], command[2::2], strict=True))
        assert settings["--appendonly"] == "yes"
        assert settings["--appendfsync"] == "everysec"
        assert settings["--maxmemory-policy"] == "noeviction"


def test_no_secret_is_written_down():
    for service in compose()["services"].values():
        for name, value in service.get("environment", {}).items():
            assert value.startswith("${") or name in {"WISE_STORE", "PROMETHEUS_MULTIPROC_DIR"}
    taken = {one["valueFrom"]["secretKeyRef"]["key"] for pod in containers().values() for container in pod["containers"]
             for one in container["env"] if "valueFrom" in one}  # fmt: skip
    assert taken == SECRETS
    assert not any(kind == "Secret" for kind, _ in objects())


def test_the_configuration_is_one_that_the_proxy_reads():
    settings = pytest.importorskip("wiserouter_litellm.settings.proxy_settings")
    text = (FOLDER / "config.yaml").read_text()
    assert objects()["ConfigMap", "wiserouter-config"]["data"]["config.yaml"] == text
    for environment in environments():
        config = yaml.safe_load(re.sub(r"os\.environ/(\w+)", lambda found: environment[found[1]], text))  # noqa: B023
        assert config["litellm_settings"]["callbacks"] == ["wiserouter_litellm.callback"]
        groups = settings.settings_of(config["callback_settings"]["wiserouter"]).groups
        (routing,) = config["router_settings"]["routing_groups"]
        assert {routing["group_name"]} == groups.keys()
        assert set(routing["models"]) == {one["model_name"] for one in config["model_list"]}
        opened = open_engine(groups["wise"].store)  # nothing is connected to yet
        assert opened.name.startswith("redis://")
        assert repr(groups["wise"].store).count("value-of-REDIS_PASSWORD") == 1
        opened.engine.close()


def monitoring():
    """Return the objects for the Prometheus operator, by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kubernetes-monitoring.yaml").read_text())}


def test_the_operator_gets_the_rules_of_the_one_file():
    rules = yaml.safe_load((FOLDER / "prometheus" / "rules.yaml").read_text())
    assert monitoring()["PrometheusRule"]["spec"] == rules


def test_the_operator_scrapes_the_service_with_the_key_of_an_administrator():
    service = objects()["Service", "wiserouter-proxy"]
    monitor = monitoring()["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] == "/wiserouter/metrics"
    assert endpoint["authorization"]["credentials"]["key"] in SECRETS


def test_the_chart_of_litellm_gets_the_same_configuration():
    values = yaml.safe_load((FOLDER / "helm-values.yaml").read_text())
    given = yaml.safe_load((FOLDER / "config.yaml").read_text())
    given["general_settings"]["master_key"] = "os.environ/PROXY_MASTER_KEY"  # the name that the chart gives it
    assert values["proxy_config"] == given
    image = compose()["services"]["proxy"]["image"]
    assert image.endswith(f"wiserouter-proxy:{values['image']['tag']}")
    (monitor,) = values["extraResources"]
    assert monitor["spec"]["endpoints"] == monitoring()["ServiceMonitor"]["spec"]["endpoints"]
    assert values["masterkeySecretName"] == values["environmentSecrets"][0] == "wiserouter"


def test_prometheus_scrapes_the_proxy_and_has_the_rules():
    settings = yaml.safe_load((FOLDER / "prometheus" / "prometheus.yml").read_text())
    services = compose()["services"]
    (scrape,) = settings["scrape_configs"]
    host, _, port = scrape["static_configs"][0]["targets"][0].partition(":")
    assert any(published.endswith(f":{port}") for published in services[host]["ports"])
    assert scrape["authorization"]["credentials_file"] == f"/run/secrets/{services['prometheus']['secrets'][0]}"
    mounted = {volume.split(":")[1] for volume in services["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{name}" for name in settings["rule_files"]} < mounted


@needs_promtool
def test_promtool_takes_the_configuration():
    command = ["promtool", "check", "config", "--syntax-only", "prometheus.yml"]
    done = subprocess.run(command, cwd=FOLDER / "prometheus", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_has_the_board_and_its_source():
    services, provisioning = compose()["services"], FOLDER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "wiserouter.yaml").read_text())["providers"]
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounted["./grafana/wiserouter.json"] == f"{provider['options']['path']}/wiserouter.json"
    assert mounted["./grafana/provisioning"] == "/etc/grafana/provisioning"


def test_the_image_has_the_metrics_and_the_workers_a_folder_for_them():
    assert "metrics" in re.search(r"/src\[([\w,]+)\]", (FOLDER / "Dockerfile").read_text())[1].split(",")
    proxy = compose()["services"]["proxy"]
    assert proxy["tmpfs"][0].startswith(f"{proxy['environment']['PROMETHEUS_MULTIPROC_DIR']}:")
