"""What runs tasks and actors: one process, its threads, and the calls in them."""
