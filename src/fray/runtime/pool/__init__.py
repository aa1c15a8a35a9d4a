"""The worker pool inside a job.

`state` decides, with the parts in `machine`; `head` carries out what it decides, over `transport`. A `host`
starts `worker` processes, which keep values in `objects` and ask the head as its `client` as the driver does.
`local_pool` puts one together on this machine.

Standard library and cloudpickle only, since this is injected into images that Fray didn't build.
"""
