"""What everything stands on: random keys, errors, memory, devices, compilation. Imports nothing else of ours."""
