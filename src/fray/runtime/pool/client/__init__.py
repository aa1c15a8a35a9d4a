"""The caller's side of the head: what a driver and a task ask of it, and how they wait for the answer."""
