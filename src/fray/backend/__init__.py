"""Where the first API had its backends; see `fray.legacy`."""
