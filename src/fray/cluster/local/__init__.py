"""The local backend: a JobSet controller and a kubelet in one process, without a cluster.

It takes the manifest that a cluster would get (`fray.plan.jobset`) and acts on it: `pods` says which
processes it stands for (`container` reads the template), `support` what this machine can't do, `host`
and `supervisor` run one process each in the user's `environment`, `attempt` a gang of them, and `runner`
follows `fray.plan.lifecycle` until the job has finished. `store` keeps status and logs for other shells, and
`jobs` is what those shells call. Ports come from `ports`, output goes through `output`, and `logs` reads it
back.

`LocalCluster` is what users call: `requests` says what a request or a FrayJob means, `claims` finds an id and
takes its locks, `launched` runs it in a `LoopThread`, `log_lines` reads what any process runs, and
`callables` is where payloads and outcomes lie. A host may be a thread, too: `host_thread`, with
`shared_process`.
"""
