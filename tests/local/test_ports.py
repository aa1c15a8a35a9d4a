"""Local hosts share one address, so their ports are chosen: free ones, and never another job's."""

from __future__ import annotations

import socket

from tests.free_ports import free_port
from tests.local.harness import Fray, job_manifest, lines_of, running_job

PRINT_PORTS = 'echo "$FRAY_COORDINATOR_ADDRESS $FRAY_PORT_HTTP"'


def ports_job(port: int, *, replicas: int = 1, name: str = "job") -> dict[str, object]:
    return job_manifest(PRINT_PORTS, name=name, replicas=replicas, ports=[{"name": "http", "port": port}])


def test_a_gang_of_one_gets_its_declared_port(fray: Fray) -> None:
    port = free_port()
    (line,) = lines_of(fray.run_job(ports_job(port)).out)
    assert line.split()[1] == str(port)


def test_a_declared_port_in_use_is_replaced_and_named(fray: Fray) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = fray.run_job(ports_job(port))
    (line,) = lines_of(result.out)
    moved = line.split()[1]
    assert moved != str(port)
    assert f"ports: http {port} -> {moved}" in result.err


def test_each_host_of_a_gang_gets_a_port_of_its_own(fray: Fray) -> None:
    result = fray.run_job(ports_job(8080, replicas=3))
    addresses, ports = zip(*(line.split() for line in lines_of(result.out)), strict=True)
    assert len(set(ports)) == 3
    assert len(set(addresses)) == 1
    assert "ports: http 8080 -> " in result.err


def test_two_jobs_at_once_share_no_port(fray: Fray) -> None:
    script = f"{PRINT_PORTS}; exec sleep 300"
    job = job_manifest(script, replicas=2, ports=[{"name": "http", "port": 8080}])
    running_job(fray, job, until="127.0.0.1")
    one = {part for host in (0, 1) for part in fray.raw_log("job", host=host).decode().split()}
    other = set(fray.run_job(ports_job(8080, replicas=2, name="other")).out.split())
    assert not one & (other - {"[0/0]", "[0/1]"})
    leases = {entry.name for entry in (fray.state / "ports").iterdir()}
    assert {part.rpartition(":")[2] for part in one} <= leases
