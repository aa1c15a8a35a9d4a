"""What Fray costs on top of JobSet, measured on nodes that KWOK imitates.

`workload` says what is run, `counters` reads what the operator needed for it, `measure` runs and times it,
`__main__` prints it as JSON. Figures are printed, never judged: machines differ.
"""
