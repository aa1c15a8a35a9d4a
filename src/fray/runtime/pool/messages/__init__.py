"""What head, hosts and workers send each other, and the state machine takes and returns."""
