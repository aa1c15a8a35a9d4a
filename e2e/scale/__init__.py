"""Fray with many FrayJobs, measured on nodes that KWOK imitates.

`throughput` compares FrayJobs with JobSets: `workload` says what is run, `measure` runs and times it.
`restart` measures the operator's start over thousands of jobs: `copies` says what they are, `population`
writes them. `counters` reads what the operator needed, `__main__` prints all of it as JSON. Figures are
printed, never judged: machines differ.
"""
