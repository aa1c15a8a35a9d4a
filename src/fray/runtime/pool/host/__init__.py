"""One host of the pool: the process that starts workers, watches them and cleans up behind them."""
