"""What a FrayJob means: pure functions from the resource to manifests, verdicts and status.

The operator, the embedded local backend and `fray explain` all call the same functions, so a job means
the same everywhere. Nothing here reads a clock, the environment, a file or the network, or draws a
random number: callers pass in what was observed and what time it is.

Building: `gang` (how many slices and hosts), `names`, `environment`, `placement`, `pod`, `command` and
`injection` (what its container runs, and what is brought into it), `overlay` (the user's podTemplate, and
what can't be merged), `jobset`. Deciding: `observation` and `pod_observation` (what was seen), `scheduling`
(why pods wait), `verdict` (why an attempt ended), `limits`, `lifecycle` (what to do next), `status` and
`events` (what to tell). `expansion` says what a pod's process will see.
"""
