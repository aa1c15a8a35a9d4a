"""The only code that talks to a Kubernetes API server.

`resources` says where kinds live, `api` what can be done with them (a Protocol), `client` does it, `errors`
says what went wrong. Requests go through a `connection_pool`, or each by a `single_exchange`; `configuration`
says where to, as the official `kubernetes` package reads it. Nothing here knows what a FrayJob means; callers
pass and get plain manifests.
"""
