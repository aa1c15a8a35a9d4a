"""Sends requests to the API server with the pod's own account and prints what each was answered.

Run in a job pod as `python3 -c SOURCE REQUESTS`, where REQUESTS is JSON: a list of [method, path, body], with
`{pod}` in paths for the pod's own name, which the variable POD holds. Prints one JSON list of HTTP statuses.
Standard library only.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEADLINE_SECONDS = 30.0


def ask(method: str, path: str, body: object) -> tuple[int, str]:
    """The HTTP status and the text that answer one request."""
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    connection = http.client.HTTPSConnection("kubernetes.default.svc", context=context, timeout=30)
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
    if body is not None:
        patch = method == "PATCH"
        headers["Content-Type"] = "application/merge-patch+json" if patch else "application/json"
    path = path.replace("{pod}", os.environ["POD"])
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def await_log(path: str) -> None:
    """Return once the server knows that this container runs; it has no log for others before."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while '"started":true' not in ask("GET", path, None)[1]:
        if time.monotonic() > deadline:
            sys.exit(f"the API server does not see that {path} runs")
        time.sleep(0.1)


requests = json.loads(sys.argv[1])
await_log(next(path.removesuffix("/log") for _, path, _ in requests if path.endswith("/log")))
print(json.dumps([ask(*request)[0] for request in requests]))
