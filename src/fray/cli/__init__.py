"""The command `fray`: a thin shell that reads what a user typed, calls `fray.cluster` and prints.

`__main__` is the entry, `app` lists the commands and imports each one's module only when it is used, so
that `fray --help` stays quick. All of them ask a `Cluster` (`clusters` opens it) and know no backend. What is
printed is made by pure functions (`story`, `columns`, `lines`); `screen` and `follow` put it on a terminal or
into a pipe while a job runs.
"""
