"""Jobs on a Ray cluster: one Ray job each, by Ray's job API. Ray is imported with the first call."""

from fray.cluster.ray.cluster import RayCluster

__all__ = ["RayCluster"]
