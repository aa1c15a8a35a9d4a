"""The pool's centre: what comes in goes to the state machine, what it commands goes out."""
