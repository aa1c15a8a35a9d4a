"""Chaos on a real cluster: jobs of mixed shapes and actors, a seeded agent that harms them, the judgement.

`plan` says what a seed stands for, `records` what was done and seen, `prediction` in which ways each attempt
may therefore have gone, and `invariants` what may never have been seen. `oracle` says how a job must then
have ended, and what its status may never tell: other suites that harm jobs use it too. All of these are pure.
`recorder` watches, `agent`, `user` and `actors` act, `campaign` is the order of it all, `display` shows it,
`__main__` is the command.
"""
