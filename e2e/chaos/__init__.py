"""Chaos on a real cluster: jobs of mixed shapes, a seeded agent that does them harm, and the judgement.

`plan` says what a seed stands for, `records` what was done and seen, `prediction` how each job must therefore
have ended and `invariants` what may never have been seen; all of these are pure. `recorder` watches, `agent`
and `user` act, `campaign` is the order of it all, `display` shows it, `__main__` is the command.
"""
