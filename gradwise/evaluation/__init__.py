"""What a record shows: metrics, evidence, findings, curves, and the statistics of trials. Runs no network."""
