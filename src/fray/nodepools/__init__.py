"""Node pools of GKE that jobs need: which, how GKE is asked for them, and what its answers mean.

`requests` turns a demand for nodes into pools, `bodies` writes a pool as GKE's API, gcloud and Terraform
take it, `existing` reads the pools that are there, `answers` explains what GKE says. Those are pure. `gke`
calls GKE by Google's client library, which is imported only there and only when it is used; `cluster_objects`
asks a cluster what is in use, and `usage` judges it. For the operator, `decisions` decides what to create and
delete, and `provider` carries that out: `none`, or on GKE.
"""
