"""One value, function or exception as a pickle: what goes by name and what by value, for any reader.

The pool and the callables of jobs both pickle by it. What surrounds a pickle is theirs.
"""
