"""The folders that journeys write: a run's, a study's, and a study merged of several."""
