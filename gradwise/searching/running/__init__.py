"""Training the trials: on this device, in worker processes, or on a Ray cluster."""
