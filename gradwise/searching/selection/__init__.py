"""The conclusion of a study: finalists, committees, nested cross-validation, batch size, findings."""
