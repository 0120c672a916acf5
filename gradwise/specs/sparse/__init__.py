"""Sparse inputs on the device (row G2): rows that hold their non-zeros, and the products that read nothing else."""
