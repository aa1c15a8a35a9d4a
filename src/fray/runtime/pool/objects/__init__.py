"""Values as bytes, the shared memory they lie in, how hosts read each other's; references are elsewhere."""
