"""The pages of a report: a study, a check, and how a run was made."""
