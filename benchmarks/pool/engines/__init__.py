"""What is measured: one module an engine, each behind the same small interface."""
