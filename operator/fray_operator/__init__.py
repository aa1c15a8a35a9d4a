"""The operator: it watches FrayJobs and runs each attempt as a JobSet.

`__main__` assembles the process. A FrayJob's events (`handlers`, through kopf) and those of its JobSets
and pods (`informer`) put its key on one queue (`queue`); a worker calls `reconcile`, which observes
(`observe`), lets `fray.plan` decide, writes the status once and acts (`act`). `lease` makes sure that
one process does so. What a FrayJob means is never decided here.
"""
