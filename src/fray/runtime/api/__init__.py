"""How a pod talks to the API server of its cluster, with the standard library alone, in any image."""
