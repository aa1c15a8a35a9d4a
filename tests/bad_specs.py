"""What is no cluster spec, with what the error tells: what is wrong, and what is legal."""

from __future__ import annotations

from typing import Final

__all__ = ["BAD_SPECS"]

BAD_SPECS: Final[list[tuple[str, str, str]]] = [
    ("", "there is no backend ''", "Legal backends: local, k8s, ray;"),
    ("locale", "no backend 'locale'", "Did you mean 'local'?"),
    ("Local", "no backend 'Local'", "Did you mean 'local'?"),
    ("kubernetes?namespace=x", "no backend 'kubernetes'", "Did you mean 'k8s'?"),
    ("k8", "no backend 'k8'", "Did you mean 'k8s'?"),
    ("gke", "no backend 'gke'", "Did you mean 'k8s'?"),
    ("iris://host:1", "no backend", "Use FRAY_CLUSTER_SPEC=local"),
    ("slurm", "no backend 'slurm'", "Legal backends"),
    ("k8s?namepsace=x", "k8s has no key 'namepsace'", "Did you mean 'namespace'?"),
    ("k8s?service-account=x", "no key 'service-account'", "Did you mean 'service_account'?"),
    ("k8s?use_isolated_env=true", "no key 'use_isolated_env'", "namespace, context, image, queue"),
    ("local?namespace=x", "local has no key 'namespace'", "Legal keys of local: use_isolated_env, mode"),
    ("k8s?=x", "no key ''", "Legal keys"),
    ("k8s?namespace=a&namespace=b", "'namespace' is given twice", "Give 'namespace' once"),
    ("k8s?namespace=a&namespace=", "'namespace' is given twice", "once"),
    ("k8s?namespace=ML", "namespace is 'ML'", "lower case"),
    ("k8s?namespace=a.b", "namespace is 'a.b'", "lower case"),
    ("k8s?namespace=" + "a" * 64, "namespace is", "63"),
    ("k8s?namespace=a%0A", "namespace is 'a\\n'", "lower case"),
    ("k8s?context=a%0Ab", "context is 'a\\nb'", "kubeconfig"),
    ("k8s?context=%FF", "context is", "kubeconfig"),
    ("k8s?image=a%20b", "image is 'a b'", "container image"),
    ("k8s?queue=tpu_queue", "queue is 'tpu_queue'", "LocalQueue"),
    ("k8s?queue=" + "q" * 64, "queue is", "LocalQueue"),
    ("k8s?service_account=Fray", "service_account is 'Fray'", "ServiceAccount"),
    ("k8s?staging=bucket/x", "staging is 'bucket/x'", "gs://"),
    ("local?mode=threads", "mode is 'threads'", "Did you mean 'thread'?"),
    ("local?mode=x", "mode is 'x'", "process, thread"),
    ("local?use_isolated_env=yes", "use_isolated_env is 'yes'", "true, false"),
    ("local?mode=thread&use_isolated_env=true", "exclude each other", "Leave one of them out"),
    ("ray?adress=auto", "no key 'adress'", "Did you mean 'address'?"),
    ("iris?controller=host", "controller is 'host'", "http://"),
]
