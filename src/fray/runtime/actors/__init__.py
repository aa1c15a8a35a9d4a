"""Named actors in a cluster: FrayActors, whose members each have a pod.

The pod of a member is a pool of its own with one worker, which runs the actor; callers join that pool as
clients. A restart of the actor is a new pool: so the pool's token names the incarnation, and a call that was
made for one incarnation can't reach another. What users call is in `fray.job.named_actors`.
"""
