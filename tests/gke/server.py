"""A GKE that nobody pays for: ClusterManager over gRPC on loopback, with GKE's rules, texts and operations.

The real client library talks to it, with the real messages. What it refuses is in `rules` and `refusals`.
Time is a clock that tests set; an operation ends at the first request after its time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc
from google.cloud import container_v1 as c
from google.cloud.container_v1.services.cluster_manager.transports import ClusterManagerGrpcTransport
from google.protobuf import json_format

from tests.gke.refusals import BY_NAME, Refusal
from tests.gke.rules import MACHINES, judge

SERVICE = "google.container.v1.ClusterManager"
METHODS = {
    "GetCluster": (c.GetClusterRequest, c.Cluster),
    "ListNodePools": (c.ListNodePoolsRequest, c.ListNodePoolsResponse),
    "GetNodePool": (c.GetNodePoolRequest, c.NodePool),
    "CreateNodePool": (c.CreateNodePoolRequest, c.Operation),
    "DeleteNodePool": (c.DeleteNodePoolRequest, c.Operation),
    "GetOperation": (c.GetOperationRequest, c.Operation),
    "ListOperations": (c.ListOperationsRequest, c.ListOperationsResponse),
}
Status = c.NodePool.Status
Running, Done = c.Operation.Status.RUNNING, c.Operation.Status.DONE


@dataclass
class Clock:
    """Seconds that pass only when a test says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def connect(address: str) -> tuple[c.ClusterManagerClient, grpc.Channel]:
    """Return the real client of a fake that may be another process's, without TLS and credentials."""
    channel = grpc.insecure_channel(address)
    return c.ClusterManagerClient(transport=ClusterManagerGrpcTransport(channel=channel)), channel


@dataclass
class _Running:
    """An operation, when it ends, and what happens then."""

    message: c.Operation
    ends: float
    finish: Callable[[c.Operation], None]


@dataclass
class FakeGke:
    """One cluster. `stockouts` are zones and machine types of which there are none.

    `quota` limits chips by accelerator (machine type's label, or GPU type); `reservations` have machines of
    their own. `policies` are Compute Engine's workload policies, by name. `creates` and `deletes` are the
    names in calls that were accepted. A `private` cluster's nodes and control plane have no public address;
    with `dns_endpoint` that is reached by a name.
    """

    project: str = "p"
    location: str = "us-east5"
    cluster: str = "c"
    zones: tuple[str, ...] = ("us-east5-a",)
    release_channel: str = "REGULAR"
    autopilot: bool = False
    limits: Mapping[str, int] | None = None
    private: bool = False
    dns_endpoint: bool = False
    policies: dict[str, dict[str, str]] = field(default_factory=dict)
    reservations: dict[str, int] = field(default_factory=dict)
    quota: dict[str, int] = field(default_factory=dict)
    stockouts: set[tuple[str, str]] = field(default_factory=set)
    missing_machines: set[tuple[str, str]] = field(default_factory=set)
    seconds: float = 60.0
    clock: Clock = field(default_factory=Clock)
    on_change: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.pools: dict[str, c.NodePool] = {}
        self.operations: dict[str, _Running] = {}
        self.creates: list[str] = []
        self.deletes: list[str] = []
        self.calls: list[str] = []
        self.scripted: deque[Refusal] = deque()
        self._lock = threading.Lock()
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._handler(name),
                request_deserializer=asked.deserialize,
                response_serializer=answered.serialize,
            )
            for name, (asked, answered) in METHODS.items()
        }
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._channels: list[grpc.Channel] = []

    # --- what tests do

    @property
    def path(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/clusters/{self.cluster}"

    @property
    def region(self) -> str:
        return "-".join(self.location.split("-")[:2])

    def client(self) -> c.ClusterManagerClient:
        """Return the real client, connected to this server without TLS and credentials."""
        client, channel = connect(self.address)
        self._channels.append(channel)
        return client

    def refuse(self, name: str) -> None:
        """Let the next creation that obeys the rules be answered by a refusal of this name."""
        self.scripted.append(BY_NAME[name])

    def begin_upgrade(self, *, seconds: float) -> str:
        """Begin an operation of the whole cluster."""
        with self._lock:
            return self._begin("UPGRADE_MASTER", self.path, seconds, lambda _: None).name

    def settle(self) -> None:
        """End the operations whose time has come."""
        with self._lock:
            self._settle()

    def __enter__(self) -> FakeGke:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels:
            channel.close()
        self._server.stop(None).wait()

    # --- what GKE does

    def _handler(self, name: str) -> Callable[[Any, grpc.ServicerContext], Any]:
        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            with self._lock:
                self._settle()
                self.calls.append(name)
                refused = getattr(self, f"_{name}")(request)
            if isinstance(refused, tuple):
                context.abort(getattr(grpc.StatusCode, refused[0]), refused[1])
            return refused

        return handle

    def _GetCluster(self, request: Any) -> Any:  # noqa: N802 - the API's name
        if request.name != self.path:
            return "NOT_FOUND", f"Not found: {request.name}."
        body: dict[str, Any] = {
            "name": self.cluster,
            "location": self.location,
            "locations": list(self.zones),
            "endpoint": "10.0.0.7" if self.private else "192.0.2.7",
            "networkConfig": {"defaultEnablePrivateNodes": self.private},
            "controlPlaneEndpointsConfig": {
                "ipEndpointsConfig": {
                    "enablePublicEndpoint": not self.private,
                    "privateEndpoint": "10.0.0.7",
                },
                "dnsEndpointConfig": {
                    "endpoint": "gke-0f3c-123.us-east5.gke.goog",
                    "allowExternalTraffic": self.dns_endpoint,
                },
            },
            "releaseChannel": {"channel": self.release_channel} if self.release_channel else {},
            "autopilot": {"enabled": self.autopilot},
        }
        if self.limits is not None:
            limits = [{"resourceType": key, "maximum": str(most)} for key, most in self.limits.items()]
            body["autoscaling"] = {"enableNodeAutoprovisioning": True, "resourceLimits": limits}
        return c.Cluster.from_json(
            json_format.MessageToJson(json_format.ParseDict(body, c.Cluster.pb(c.Cluster())))
        )

    def _ListNodePools(self, request: Any) -> Any:  # noqa: N802
        if request.parent != self.path:
            return "NOT_FOUND", f"Not found: {request.parent}."
        return c.ListNodePoolsResponse(node_pools=list(self.pools.values()))

    def _GetNodePool(self, request: Any) -> Any:  # noqa: N802
        found = self.pools.get(request.name.rpartition("/")[2])
        return found or ("NOT_FOUND", f"Not found: {request.name}.")

    def _CreateNodePool(self, request: Any) -> Any:  # noqa: N802
        pool = request.node_pool
        if request.parent != self.path:
            return "NOT_FOUND", f"Not found: {request.parent}."
        answer = judge(pool, self) or self._busy(None) or self._lacks_quota(pool)
        if answer is not None:
            return answer
        refusal = self.scripted.popleft() if self.scripted else None
        if refusal is not None and refusal.comes == "call":
            return refusal.code, refusal.text
        self.creates.append(pool.name)
        if not pool.locations:
            pool.locations.extend(self.zones)
        # The API's page on NodeNetworkConfig: where a request doesn't say, the cluster's default counts.
        if "enable_private_nodes" not in pool.network_config:
            pool.network_config.enable_private_nodes = self.private
        pool.status = Status.PROVISIONING
        self.pools[pool.name] = pool
        self.on_change()

        def finish(operation: c.Operation) -> None:
            failed = refusal or self._lacks_machines(pool)
            if failed is None:
                pool.status = Status.RUNNING
                return
            pool.status, pool.status_message = Status.ERROR, failed.text
            operation.error = {"code": 8, "message": failed.text}

        return self._begin("CREATE_NODE_POOL", f"{self.path}/nodePools/{pool.name}", self.seconds, finish)

    def _DeleteNodePool(self, request: Any) -> Any:  # noqa: N802
        name = request.name.rpartition("/")[2]
        pool = self.pools.get(name)
        if pool is None:
            return "NOT_FOUND", f"Not found: {request.name}."
        busy = self._busy(name)
        if busy is not None:
            return busy
        self.deletes.append(name)
        pool.status = Status.STOPPING

        def finish(operation: c.Operation) -> None:
            del self.pools[name]
            self.on_change()

        return self._begin("DELETE_NODE_POOL", request.name, self.seconds, finish)

    def _GetOperation(self, request: Any) -> Any:  # noqa: N802
        found = self.operations.get(request.name.rpartition("/")[2])
        return ("NOT_FOUND", f"Not found: {request.name}.") if found is None else found.message

    def _ListOperations(self, _: Any) -> Any:  # noqa: N802
        return c.ListOperationsResponse(operations=[each.message for each in self.operations.values()])

    def _begin(
        self, kind: str, target: str, seconds: float, finish: Callable[[c.Operation], None]
    ) -> c.Operation:
        number = 1_700_000_000_000 + len(self.operations)
        message = c.Operation(
            name=f"operation-{number}-{len(self.operations):04x}",
            operation_type=kind,
            status=Running,
            target_link=f"https://container.googleapis.com/v1/{target}",
            location=self.location,
        )
        self.operations[message.name] = _Running(message, self.clock() + seconds, finish)
        return message

    def _settle(self) -> None:
        for running in self.operations.values():
            if running.message.status != Done and self.clock() >= running.ends:
                running.finish(running.message)
                running.message.status = Done
                running.message.end_time = datetime.fromtimestamp(self.clock(), UTC).isoformat()
                self.on_change()

    def _busy(self, pool: str | None) -> tuple[str, str] | None:
        """One operation of the cluster at a time, and one of each pool: reference/gke.md 10."""
        for running in self.operations.values():
            target = running.message.target_link.rpartition("/")[2]
            if running.message.status != Done and target in (self.cluster, pool):
                return (
                    "FAILED_PRECONDITION",
                    f"Cluster is running incompatible operation {running.message.name}.",
                )
        return None

    def _lacks_quota(self, pool: c.NodePool) -> tuple[str, str] | None:
        kind, chips = self._chips(pool)
        if kind not in self.quota or pool.config.reservation_affinity.values:  # which have none: gke.md 10
            return None
        others = [self._chips(each) for each in self.pools.values()]
        free = self.quota[kind] - sum(each for other, each in others if other == kind)
        if chips <= free:
            return None
        total = self.quota[kind]
        needs = f"resource \"{kind}\": request requires '{chips}.0' and is short '{chips - free}.0'"
        has = f"project has a quota of '{total}.0' with '{free}.0' available"
        text = f"Insufficient regional quota to satisfy request: {needs}. {has}."
        return "PERMISSION_DENIED", text

    def _chips(self, pool: c.NodePool) -> tuple[str, int]:
        nodes = pool.initial_node_count * max(1, len(pool.locations))
        machine = MACHINES.get(pool.config.machine_type)
        if machine is not None:
            return machine.accelerator_label, machine.chips * nodes
        for each in pool.config.accelerators:
            return each.accelerator_type, each.accelerator_count * nodes
        return "", 0

    def _lacks_machines(self, pool: c.NodePool) -> Refusal | None:
        if any((zone, pool.config.machine_type) in self.stockouts for zone in pool.locations):
            return BY_NAME["stock-out"]
        reserved = next(iter(pool.config.reservation_affinity.values), None)
        if reserved is not None and self.reservations.get(reserved, 0) < pool.initial_node_count:
            return BY_NAME["reservation too small"]
        return None
