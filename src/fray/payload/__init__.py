"""What crosses processes by value: a job's callable on its way out, and what became of it on its way back.

Standard library and cloudpickle only, since half of it runs in the user's image.
"""
