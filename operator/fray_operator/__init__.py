"""The operator: it watches FrayJobs and runs each attempt as a JobSet.

`__main__` assembles the process, which serves the kinds of `frayjobs`, each a record of `kinds`. The events
of their objects (`source`, through kopf) and of what belongs to those (`informer`) put a key on one queue
(`queue`). A worker has the kind's controller make a pass: for FrayJobs `reconcile`, which observes
(`observe`), lets `fray.plan` decide, writes the status once (`writer`) and acts (`act`). `lease` makes sure
that one process does so. What a FrayJob means is never decided here.
"""
