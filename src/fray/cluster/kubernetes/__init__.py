"""The Kubernetes backend: jobs as FrayJobs, which the operator runs.

`cluster` is what users call, from any thread; it asks `session`, which keeps one connection to the API server
on a `LoopThread`. What is asked stands in `launching`, `changes`, `waiting`, `results`, `running_hosts` and
`logs`, each over `KubeApi` alone; `access` finds the cluster, and `watching` and `api_errors` say what is
tried again, and what an error of the server means to a user. What a FrayJob means is decided elsewhere.
"""

from fray.cluster.kubernetes.cluster import KubernetesCluster

__all__ = ["KubernetesCluster"]
