"""The end of a study: finalists, committees, nested cross-validation, batch size, findings."""
