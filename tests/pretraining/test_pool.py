"""Which rows layers are pre-trained on: no group and no time of the rows that judge, and no row of theirs."""

import numpy as np
import pytest

from gradwise.pretraining.layer_recipes import learner
from gradwise.pretraining.pool import pool_of
from gradwise.specs.dataset import UNLABELLED, Classes, Dataset, Numbers


def rows(numbers, **beside):
    """Rows whose input is their number, so that they can be told apart."""
    numbers = np.asarray(numbers)
    task = Classes(np.arange(2))
    return Dataset(numbers[:, None].astype(float), numbers % 2, task, **{k: np.asarray(v) for k, v in beside.items()})


TRAIN, VALID, TEST = rows([0, 1, 2]), rows([10, 11]), rows([20, 21])


def numbers(pool):
    return pool.rows.inputs[:, 0].tolist()


def test_rows_without_a_target_follow_the_training_rows_and_their_targets_are_not_looked_at():
    pool = pool_of(TRAIN, [VALID, TEST], rows([30, 31]), rows([40]))
    assert numbers(pool) == [0, 1, 2, 30, 31, 40]
    assert pool.rows.targets.tolist() == [0, 1, 0, UNLABELLED, UNLABELLED, UNLABELLED]
    assert (pool.spare, pool.left_out) == (3, 0)
    assert pool_of(TRAIN, [VALID, TEST], None, None).rows is TRAIN


def test_no_group_that_judges_is_learned_from_where_groups_are_kept_apart():
    train, valid = rows([0, 1], groups=["a", "b"]), rows([10], groups=["c"])
    spare = rows([30, 31, 32], groups=["a", "c", "d"])
    pool = pool_of(train, [valid], spare, None)
    assert (numbers(pool), pool.spare, pool.left_out) == ([0, 1, 30, 32], 2, 1)
    mixed = rows([10], groups=["a"])  # a split that does not look at groups keeps nothing apart
    assert pool_of(train, [mixed], spare, None).spare == 3


def test_nothing_from_when_judging_begins_is_learned_from_where_times_are_kept_apart():
    train, valid = rows([0, 1], times=[1.0, 2.0]), rows([10], times=[5.0])
    pool = pool_of(train, [valid], rows([30, 31, 32, 33], times=[4.9, 5.0, 9.0, np.nan]), None)
    assert (numbers(pool), pool.left_out) == ([0, 1, 30], 3)
    assert pool_of(train, [rows([10], times=[1.5])], rows([30], times=[9.0]), None).spare == 1
    everything = pool_of(train, [valid], rows([32], times=[9.0]), None)
    assert everything.rows is train
    (left_out,) = everything.findings([learner("plain", 2)])
    assert left_out.what.startswith("1 rows without a target are not used: they belong to the groups")


def test_weights_are_kept_and_others_get_the_usual_one():
    train = rows([0, 1], weights=[1.0, 3.0])
    assert pool_of(train, [], rows([30], weights=[5.0]), None).rows.weights.tolist() == [1.0, 3.0, 5.0]
    assert pool_of(train, [], rows([30]), rows([31])).rows.weights.tolist() == [1.0, 3.0, 2.0, 2.0]


def test_numbers_that_are_not_known():
    train = Dataset(np.zeros((2, 1)), np.ones((2, 3)), Numbers(("a", "b", "c")))
    assert pool_of(train, [], None, TRAIN).rows.labelled.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("kinds", "levels", "told"),
    [
        (("plain", "plain"), ("note",), "3 rows without a target served the pre-training alone."),
        (("plain", "supervised"), ("note",), "not of layer 2, which learns from the target."),
        (("supervised", "supervised"), ("warning",), "3 rows without a target are not used: supervised layers"),
    ],
)
def test_how_many_rows_without_a_target_serve_which_layers(kinds, levels, told):
    pool = pool_of(TRAIN, [VALID], rows([30, 31, 32]), None)
    found = pool.findings([learner(kind, 2, task="classes") for kind in kinds])
    assert tuple(one.level for one in found) == levels
    assert told in found[0].what
    assert pool_of(TRAIN, [VALID], None, None).findings([learner("plain", 2)]) == ()
