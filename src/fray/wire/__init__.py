"""The custom resources as they stand on the wire: models, rules, CRD schema.

`frayjob.py`, `frayactor.py` and `status.py` hold the fields, with their parts in `pod.py` and `resources.py`;
`rules.py` (and `accelerator_rules.py`, generated from facts) what is refused beyond types; `schema.py` turns
both into CRDs; `validation.py` judges a manifest as the API server would (`structure.py`: its shape).
`quantities.py` reads scalars. Nothing here knows what an object means (`fray.plan`) or
talks to a cluster (`fray.kube`).
"""
