"""Networks: specs that build Equinox modules."""
