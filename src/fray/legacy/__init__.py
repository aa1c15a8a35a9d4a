"""Names of Fray's first API that have no counterpart under another name: thin adapters to what is there now.

What only moved stands where it was imported from: `fray.context`, `fray.job_context`, `fray.cluster.types`,
`fray.backend`. Nothing new belongs here, and nothing below may need it.
"""
