"""Proofs for parts, ours and yours: `contracts` checks that a part keeps its word, `oracles` says what is right.

from gradwise.testing.contracts import check_part
check_part(MyOptimiser(learning_rate=0.1))
"""
