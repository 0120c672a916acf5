"""Search: strategies that propose, populations that train, one store that keeps every trial."""
