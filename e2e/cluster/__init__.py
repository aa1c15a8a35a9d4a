"""Real Kubernetes for tests, made from upstream sources on the machine that runs the tests.

`build` compiles the pinned programs once, `controlplane` runs an apiserver with its etcd for one test run.
Nothing here knows Fray: a cluster is the same cluster whatever is installed on it later.
"""
