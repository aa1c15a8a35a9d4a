"""Scenarios on a real Kubernetes cluster, and the harness (`e2e.cluster`) that starts one."""
