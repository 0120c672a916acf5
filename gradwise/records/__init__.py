"""What a run leaves behind: findings, outcomes, trials, and the records of a fit, a study and a check."""
