"""Where jobs run: each backend is a package of its own and understands the same FrayJob.

What a FrayJob means is decided in `fray.plan`, for all of them; nothing here knows the command line.
"""
