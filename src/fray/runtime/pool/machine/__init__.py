"""The parts of the pool's state machine, which `fray.runtime.pool.state` puts together.

Pure: no clock, no sockets, no files, no processes, no chance. Nothing outside `state` imports from here.
"""
