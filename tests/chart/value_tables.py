"""Values of the chart, good and bad, by their path in values.yaml.

Whether the chart takes them is the tests' part (`test_values`).
"""

from __future__ import annotations

from typing import Any

__all__ = ["ACCEPTED", "CONTRADICTIONS", "GKE", "REFUSED", "Values"]

Values = dict[str, Any]

DIGEST = "sha256:" + "0" * 64
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_SWITCH = ["yes", "true", 1, None, {}]
_OBJECT_NAMES = ["Bad_Name", "a..b", "-a", "a.", "a/b", "a b", "a\n", "a" * 254, 5, True]
_NAMESPACES = ["default", {"a": "b"}, [""], ["a.b"], ["Default"], ["a" * 64], [5], [None], ["a", "a"]]
_BAD_KEYS = ["", "a b", "-a", "a/b/c", "/a", "A!/b", "a" * 64, "Ex_ample/a"]
_MAPS: list[Any] = ["a=b", ["a"], {"a": 1}, {"a": True}, {"a": None}, {"a": {"b": "c"}}]
_ANNOTATIONS: list[Any] = [*_MAPS, *({key: "b"} for key in _BAD_KEYS)]
_LABELS: list[Any] = [*_ANNOTATIONS, *({"a": value} for value in ("a" * 64, "a b", "-a", "a.", "a/b", "ä"))]
_OWN_LABELS = ["name", "instance", "part-of", "version", "managed-by"]
_ADDED_LABELS: list[Any] = [*_LABELS, {"helm.sh/chart": "x"}]
_ADDED_LABELS += [{f"app.kubernetes.io/{name}": "x"} for name in _OWN_LABELS]
_NO_INTERVALS: list[Any] = [30, "30", "30 s", "-30s", "1s1h", "1.5m", "", "often", None]
_QUANTITIES = ["banana", "", "-1", -1, "1 Gi", "1GB", "1gi", "0x10", "1.5.3", "1,5", "Mi", True, [], "1\n"]
_REPOSITORIES = [
    "https://registry.example/x",
    "registry.example/op:v1",
    f"op@{DIGEST}",
    "op:5000",
    "Op",
    "a b",
]
_REPOSITORIES += ["/op", "op/", "a//b", "a..b", "op-", "r.example:0/op", "r.example:65536/op", "x" * 201]
_BAD_VARIABLES: list[Any] = [
    *({}, {"value": "b"}, {"name": ""}, {"name": "1A"}, {"name": "A B"}, {"name": 5}),
    *({"name": "A", "value": 1}, {"name": "A", "value": None}, {"name": "A", "valu": "b"}),
]
_BAD_SOURCES: list[Any] = [
    *("secret", {}, {"secretRef": {"name": "a"}}, {"secretKeyRef": {"name": "a"}}),
    {"secretKeyRef": {"name": "A", "key": "b"}},
    {"configMapKeyRef": {"name": "a", "key": ""}},
    {"secretKeyRef": {"name": "a", "key": "b", "optional": "yes"}},
    {"fieldRef": {"path": "metadata.name"}},
    {"resourceFieldRef": {"resource": "memory"}},
    {"fieldRef": {"fieldPath": "a"}, "secretKeyRef": {"name": "a", "key": "b"}},
]
_BAD_TOLERATIONS: list[Any] = [
    *({}, {"keys": "a"}, {"key": "a b"}, {"key": "a", "operator": "In"}, {"key": "a", "effect": "NoRun"}),
    *({"operator": "Equal", "value": "b"}, {"key": "", "value": "b"}, {"value": "b"}),
    *({"key": "a", "value": "b c"}, {"key": "a", "operator": "Exists", "value": "b"}),
    {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
    {"key": "a", "tolerationSeconds": 5},
    {"key": "a", "effect": "NoExecute", "tolerationSeconds": "5m"},
]
_BAD_NODE_AFFINITIES: list[Any] = [
    *({"required": {}}, {REQUIRED: []}, {REQUIRED: {"nodeSelectorTerms": []}}),
    {REQUIRED: {"nodeSelectorTerms": [{"matchLabels": {}}]}},
    {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}]}},
    *({PREFERRED: [{"weight": weight, "preference": {}}]} for weight in (0, 101, "1", None)),
]
_BAD_POD_AFFINITIES: list[Any] = [
    {REQUIRED: [{"labelSelector": {}}]},
    {REQUIRED: [{"topologyKey": "a", "labelSelector": {"a": "b"}}]},
    {PREFERRED: [{"topologyKey": "a"}]},
]
_BAD_AFFINITIES: list[Any] = [
    *(["a"], "none", {"nodeAffinty": {}}),
    *({"nodeAffinity": affinity} for affinity in _BAD_NODE_AFFINITIES),
    *({kind: affinity} for kind in ("podAffinity", "podAntiAffinity") for affinity in _BAD_POD_AFFINITIES),
]
_BAD_RANGES = ["10.0.0.1", "10.0.0.0/33", "300.1.1.1/8", "10.0.0/8", "010.0.0.0/8", "10.0.0.0/-1", "any", ""]
_BAD_RANGES += ["::1", "::1/129", ":/1", "1::2::3/64", "fd00:::1/64", "1:2:3:4:5:6:7/64"]
_IMAGE: dict[str, list[Any]] = {
    "repository": [*_REPOSITORIES, "", None, 5, ["op"]],
    "tag": ["a b", ".a", "-a", "a/b", "a:b", "a" * 129, 1.0, 2, True],
    "digest": ["sha256:123", "0" * 64, "md5:" + "0" * 32, DIGEST.upper(), f"{DIGEST}0", 5],
}

REFUSED: dict[str, list[Any]] = {
    "scope": ["both", "Cluster", "", None, ["default"], True],
    "namespaces": _NAMESPACES,
    "registry": [
        *(
            "https://registry.example/x",
            "r.example//a",
            "r.example/a:v1",
            "r.example/a b",
            "r.example/a..b",
            "R/a",
        ),
        *("r.example:99999/a", "registry.example/ ", "x" * 201, 5),
    ],
    **{f"image.{name}": bad for name, bad in _IMAGE.items()},
    "image.pullPolicy": ["Sometimes", "always", "", None, True],
    "image.pullSecrets": [
        "a",
        [{"name": "x"}],
        [""],
        ["a", "a"],
        [None],
        *([name] for name in _OBJECT_NAMES),
    ],
    **{f"runtimeImage.{name}": bad for name, bad in _IMAGE.items()},
    "replicas": [0, -1, 11, 1.5, "two", "2", None, True, [2]],
    "leaseSeconds": [0, 5, 301, -15, 15.5, "15s", "15", None],
    "backoff.seconds": [0, -1, 86401, "10s", "10", None, True],
    "backoff.capSeconds": [0, -1, 86401, "1h", "360", None, True],
    "avoidSeconds": [-1, 604801, 0.5, "1h", "3600", None, True],
    "settleSeconds": [-1, 3601, "5s", "5", None, True],
    "unreachableSeconds": [0, 0.5, -1, 86401, "1m", "60", None, True],
    "metadataServer": _SWITCH,
    "kueue.elasticJobs": _SWITCH,
    "nodePools.provider": ["eks", "GKE", "", None, True],
    "nodePools.cluster": ["c", "projects/p/clusters/c", "projects/p/locations/l/clusters/", 5],
    "nodePools.maxPools": [0, -1, 1001, 1.5, "8", None],
    "nodePools.maxChips": [64, ["a=1"], {"a": "1"}, {"a": -1}, {"a": 1.5}, {"A=b": 1}, {"": 1}],
    "nodePools.idleSeconds": [0, -1, 604801, "10m", "600", None],
    "nodePools.zones": ["us-east5-a", ["us-east5"], [5], [""], ["us-east5-a", "us-east5-a"]],
    "nodePools.spot": _SWITCH,
    "nodePools.serviceAccount": ["nodes", "@p.example", "a b@p.example", 5],
    "logLevel": ["info", "TRACE", "", None, 10, True],
    "httpPort": [80, 1023, 0, -8080, 65536, 8080.5, "8080", "http", None],
    "extraEnv": [
        *({"A": "b"}, "A=b", ["A=b"], [None]),
        *([entry] for entry in _BAD_VARIABLES),
        *([{"name": "A", "valueFrom": source}] for source in _BAD_SOURCES),
    ],
    "jobset.enabled": ["yes", "true", 1, {}],
    "jobset.image.repository": _IMAGE["repository"],
    "jobset.image.tag": [*_IMAGE["tag"], "", None],
    "jobset.image.pullPolicy": ["Sometimes", "", None],
    "crds.install": ["no", "true", 0, {}],
    "rbac.create": _SWITCH,
    "rbac.aggregate": _SWITCH,
    "serviceAccount.create": _SWITCH,
    "serviceAccount.name": _OBJECT_NAMES,
    "serviceAccount.annotations": _ANNOTATIONS,
    "jobs.namespaces": _NAMESPACES,
    "jobs.serviceAccount.create": _SWITCH,
    "jobs.serviceAccount.name": [*_OBJECT_NAMES, "", None],
    "jobs.serviceAccount.annotations": _ANNOTATIONS,
    "jobs.serviceAccount.imagePullSecrets": ["a", [{"name": "x"}], [""], ["a", "a"], [None]],
    "resources.requests": [
        "1Gi",
        {"cpus": 1},
        {"Memory": "1Gi"},
        {"google.com/tpu": 4},
        {"cpu": "1Gi", "x": 1},
    ],
    "resources.requests.cpu": _QUANTITIES,
    "resources.requests.memory": _QUANTITIES,
    "resources.limits": ["1Gi", ["memory"], {"mem": "1Gi"}, {"cpu": "two"}, {"ephemeral-storage": "much"}],
    "resources.limits.memory": _QUANTITIES,
    "podLabels": _ADDED_LABELS,
    "podAnnotations": _ANNOTATIONS,
    "priorityClassName": _OBJECT_NAMES,
    "nodeSelector": _LABELS,
    "tolerations": [*({"key": "a"}, ["a"]), *([toleration] for toleration in _BAD_TOLERATIONS)],
    "affinity": _BAD_AFFINITIES,
    "pdb.enabled": _SWITCH,
    "networkPolicy.enabled": _SWITCH,
    "networkPolicy.apiServer.cidrs": [
        "10.0.0.0/8",
        [None],
        [5],
        ["10.0.0.0/8", "10.0.0.0/8"],
        *([cidr] for cidr in _BAD_RANGES),
    ],
    "networkPolicy.apiServer.ports": [
        *(None, [], 443, "443"),
        *([port] for port in (0, -443, 65536, "https", 1.5)),
        [443, 443],
    ],
    "networkPolicy.metricsFrom": _NAMESPACES,
    "metricsService.enabled": _SWITCH,
    "metricsService.annotations": _ANNOTATIONS,
    "prometheusRule.enabled": _SWITCH,
    "prometheusRule.labels": _ADDED_LABELS,
    "dashboard.enabled": _SWITCH,
    "dashboard.labels": _ADDED_LABELS,
    "serviceMonitor.enabled": _SWITCH,
    "serviceMonitor.labels": _ADDED_LABELS,
    "serviceMonitor.interval": _NO_INTERVALS,
    "podMonitor.enabled": _SWITCH,
    "podMonitor.labels": _ADDED_LABELS,
    "podMonitor.interval": _NO_INTERVALS,
}
"""Must be refused with the path in the message."""

_KEY = {"name": "a", "key": "b.c"}
_TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a/b": "c"}}}
_VARIABLES = [{"name": "A"}, {"name": "A", "value": ""}, {"name": "a.b-c_1", "value": "1"}]
_SOURCES: list[Any] = [
    {"secretKeyRef": _KEY},
    {"configMapKeyRef": {**_KEY, "optional": True}},
    {"fieldRef": {"fieldPath": "status.podIP"}},
    {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
]
_TOLERATIONS: list[Any] = [
    {"operator": "Exists"},
    {"key": "a", "value": "b"},
    {"key": "a.b/c", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
]
_NODE_AFFINITIES: list[Any] = [
    {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}},
    {
        REQUIRED: {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a/b", "operator": "In", "values": ["c"]}]}]
        }
    },
    {PREFERRED: [{"weight": 1, "preference": {"matchFields": []}}]},
]

ACCEPTED: dict[str, list[Any]] = {
    "scope": ["cluster", "namespace"],
    "namespaces": [[], None],
    "registry": [
        *("", "registry.example", "r.example:5000/a/", "localhost:65535", "team", "my_team/a__b/c--d"),
        "us-docker.pkg.dev/project-1/repo.2",
    ],
    "image.repository": ["op", "a/b/c", "localhost:5000/op", "r.example/a_b.c--d"],
    "image.tag": ["", None, "v1.0", "1", "A" * 128, "_x"],
    "image.digest": ["", None, DIGEST],
    "image.pullPolicy": ["Always", "IfNotPresent", "Never"],
    "image.pullSecrets": [[], None, ["a", "b.c-d"], ["1"]],
    "runtimeImage.repository": ["python", "ghcr.io/a/b"],
    "runtimeImage.tag": ["3.11-slim"],
    "runtimeImage.digest": [DIGEST],
    "replicas": [1, 2, 10],
    "leaseSeconds": [6, 300],
    "backoff.seconds": [0.5, 1, 360],
    "backoff.capSeconds": [10, 86400],
    "avoidSeconds": [0, 1, 604800],
    "settleSeconds": [0, 0.5, 3600],
    "unreachableSeconds": [1, 60, 86400],
    "metadataServer": [True, False],
    "kueue.elasticJobs": [True, False],
    "nodePools.provider": ["none"],
    "nodePools.cluster": ["", None, "projects/example.com:p-1/locations/us-east5-a/clusters/c-1"],
    "nodePools.maxPools": [1, 1000],
    "nodePools.maxChips": [{}, None, {"tpu-v5p-slice": 64, "nvidia-l4": 0}],
    "nodePools.idleSeconds": [1, 0.5e3, 604800],
    "nodePools.zones": [[], None, ["us-east5-a", "europe-west4-b"]],
    "nodePools.spot": [True, False],
    "nodePools.serviceAccount": ["", None, "nodes@p.iam.gserviceaccount.com"],
    "logLevel": ["DEBUG", "INFO", "WARNING", "ERROR"],
    "httpPort": [1024, 65535],
    "extraEnv": [
        *([], None),
        *([entry] for entry in _VARIABLES),
        *([{"name": "A", "valueFrom": source}] for source in _SOURCES),
    ],
    "jobset.enabled": [True, False],
    "jobset.image.repository": ["r.example/jobset"],
    "jobset.image.tag": ["v0.12.1"],
    "jobset.image.pullPolicy": ["Never"],
    "crds.install": [None, True, False],
    "rbac.create": [True, False],
    "rbac.aggregate": [True, False],
    "serviceAccount.create": [True],
    "serviceAccount.name": ["", None, "ours", "a.b", "1"],
    "serviceAccount.annotations": [{}, None, {"iam.gke.io/gcp-service-account": "a@b.example"}],
    "jobs.namespaces": [[], None, ["a", "b-1"], ["1"], ["fray-system", "a" * 63]],
    "jobs.serviceAccount.create": [True, False],
    "jobs.serviceAccount.name": ["worker", "a.b", "default"],
    "jobs.serviceAccount.annotations": [{}, None, {"a": ""}],
    "jobs.serviceAccount.imagePullSecrets": [[], None, ["a", "b.c-d"]],
    "resources.requests": [None, {}, {"cpu": 0.1}, {"ephemeral-storage": "1Gi"}],
    "resources.requests.cpu": [None, "100m", 1, "1.5", ".5", "5.", 2e-1],
    "resources.requests.memory": [None, "0", "268435456", "256Mi", "100M", "1e8", "+1Ki", 0],
    "resources.limits": [None, {}, {"cpu": "4"}, {"cpu": 1, "memory": "1Gi", "ephemeral-storage": "1G"}],
    "resources.limits.memory": [None, "256Mi", "0.5Gi", "1Ti", "1E", "1e10", 536870912],
    "podLabels": [{}, None, {"team": "ml"}, {"example.com/a_b": ""}, {"a" * 63: "a" * 63}, {"A": "1.5"}],
    "podAnnotations": [{}, None, {"example.com/a": "any text: {}\n"}],
    "priorityClassName": ["", None, "system-cluster-critical", "1"],
    "nodeSelector": [{}, None, {"cloud.google.com/gke-nodepool": "system"}, {"a": ""}],
    "tolerations": [*([], None), *([toleration] for toleration in _TOLERATIONS)],
    "affinity": [
        {},
        None,
        *({"nodeAffinity": affinity} for affinity in _NODE_AFFINITIES),
        {
            "podAffinity": {REQUIRED: [_TERM]},
            "podAntiAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": _TERM}]},
        },
    ],
    "pdb.enabled": [True, False],
    "networkPolicy.enabled": [True, False],
    "networkPolicy.apiServer.cidrs": [
        *([], None),
        ["0.0.0.0/0", "10.255.1.0/32", "::/0", "::1/128", "fd00:1:2::/48"],
        ["2001:db8:1:2:3:4:5:6/128", "1:2:3:4:5:6:7::/112", "1::8/99", "FD00::A:B/100"],
    ],
    "networkPolicy.apiServer.ports": [[443], [1, 65535]],
    "networkPolicy.metricsFrom": [[], None, ["monitoring", "1"]],
    "metricsService.enabled": [True, False],
    "metricsService.annotations": [{}, None, {"a": "b"}],
    "prometheusRule.enabled": [False],
    "prometheusRule.labels": [{}, None, {"release": "prometheus"}],
    "dashboard.enabled": [True, False],
    "dashboard.labels": [{}, None, {"grafana_dashboard": "yes"}],
    "serviceMonitor.enabled": [True, False],
    "serviceMonitor.labels": [{}, None, {"release": "prometheus"}],
    "serviceMonitor.interval": ["30s", "1m", "1h30m", "500ms", "1d"],
    "podMonitor.enabled": [True, False],
    "podMonitor.labels": [{}, None, {"release": "prometheus"}],
    "podMonitor.interval": ["15s"],
}
"""Must be taken, alone and with every optional object installed."""

GKE: Values = {
    "provider": "gke",
    "cluster": "projects/p/locations/us-east5/clusters/c",
    "maxChips": {"tpu-v5p-slice": 64, "nvidia-l4": 8},
}
"""What makes the operator provide node pools."""

CONTRADICTIONS: list[tuple[Values, str]] = [
    ({"scope": "namespace", "nodePools": GKE}, "nodePools.provider: gke needs scope=cluster"),
    ({"nodePools": {**GKE, "cluster": ""}}, "nodePools.cluster: name the cluster, projects/PROJECT/"),
    ({"nodePools": {**GKE, "maxChips": {}}}, "nodePools.maxChips: allow some, such as tpu-v5p-slice: 64"),
    (
        {"extraEnv": [{"name": "FRAY_NODE_POOLS", "value": "gke"}]},
        "extraEnv: set the value nodePools.provider",
    ),
    (
        {"scope": "namespace", "jobset": {"enabled": True}},
        "jobset.enabled: JobSet serves a whole cluster, and scope=namespace installs nothing outside",
    ),
    ({"backoff": {"seconds": 500}}, "backoff.capSeconds: must be at least backoff.seconds (500), it is 360"),
    ({"extraEnv": [{"name": "FRAY_LOG_LEVEL", "value": "x"}]}, "extraEnv: set the value logLevel instead"),
    ({"extraEnv": [{"name": "FRAY_NAMESPACES", "value": "x"}]}, "extraEnv: set the value namespaces instead"),
    ({"extraEnv": [{"name": "FRAY_LEASE_NAME", "value": "x"}]}, "FRAY_LEASE_NAME is the chart's own"),
    ({"extraEnv": [{"name": "A"}, {"name": "A", "value": "b"}]}, "extraEnv: A is there twice"),
    (
        {"extraEnv": [{"name": "A", "value": "b", "valueFrom": {"secretKeyRef": _KEY}}]},
        "extraEnv: A has both value and valueFrom",
    ),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name: name the existing account to use"),
    (
        {"scope": "namespace", "jobs": {"namespaces": ["default"]}},
        "jobs.namespaces: default isn't served; with scope=namespace jobs run in fray-system",
    ),
    (
        {"scope": "namespace", "namespaces": ["a", "b"], "jobs": {"namespaces": ["b", "c"]}},
        "jobs.namespaces: c isn't served; with scope=namespace jobs run in a, b",
    ),
    ({"namespaces": ["a"]}, "namespaces: with scope=cluster every namespace is served"),
    (
        {"scope": "namespace", "namespaces": ["a"], "jobs": {"serviceAccount": {"name": "fray-operator"}}},
        "jobs.serviceAccount.name: fray-operator is the operator's own in namespace a",
    ),
    (
        {"scope": "namespace", "jobs": {"serviceAccount": {"name": "fray-operator"}}},
        "jobs.serviceAccount.name: fray-operator is the operator's own in namespace fray-system",
    ),
    (
        {"scope": "namespace", "serviceAccount": {"create": False, "name": "fray-job"}},
        "jobs.serviceAccount.name: fray-job is the operator's own",
    ),
    (
        {"jobs": {"namespaces": ["fray-system"], "serviceAccount": {"name": "fray-operator-lease"}}},
        "jobs.serviceAccount.name: fray-operator-lease is the operator's own",
    ),
    (
        {"registry": "r.example", "image": {"repository": "localhost:5000/op"}},
        "image.repository: localhost:5000/op names a registry with a port",
    ),
    (
        {"registry": "r.example", "runtimeImage": {"repository": "localhost:5000/op"}},
        "runtimeImage.repository: localhost:5000/op names a registry with a port",
    ),
    (
        {"resources": {"limits": {"memory": "200Mi"}}},
        "resources.limits.memory: must be at least resources.requests.memory (256Mi), it is 200Mi",
    ),
    ({"resources": {"limits": {"memory": "512m"}}}, "resources.limits.memory: must be at least"),
    ({"resources": {"requests": {"memory": "0.6Gi"}}}, "resources.limits.memory: must be at least"),
    ({"resources": {"limits": {"cpu": "99m"}}}, "resources.limits.cpu: must be at least"),
    (
        {"prometheusRule": {"enabled": True}, "metricsService": {"enabled": False}},
        "prometheusRule.enabled: needs metricsService.enabled=true",
    ),
    (
        {"serviceMonitor": {"enabled": True}, "metricsService": {"enabled": False}},
        "serviceMonitor.enabled: needs metricsService.enabled=true",
    ),
]
"""Values that are good alone and not together, or not with what the chart does itself; and what is said."""
