"""The only code that talks to a Kubernetes API server.

`resources` says where kinds live, `api` what can be done with them (a Protocol), `client` does it
through the official `kubernetes` package, `errors` says what went wrong. Nothing here knows what a
FrayJob means; callers pass and get plain manifests.
"""
