"""Fray's in-job pool beside Ray, Dask and ProcessPoolExecutor: the same measurements in the same run."""
