"""Sequences are scaled step by step: statistics of all training steps, NaN beyond the end alone."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import gradwise as gw
from gradwise.data.input_kind import kind_of_inputs
from gradwise.data.scaling import Automatic, Standardise
from gradwise.data.sequence_scaling import Steps
from gradwise.specs.sequences import Sequences
from gradwise.specs.serialisation import from_json, to_json


def _sequences() -> Sequences:
    random = np.random.default_rng(0)
    values = random.normal(3.0, [1.0, 5.0], size=(30, 2))
    values[4, 1] = np.nan
    values[11] = np.nan  # a whole step, within a sequence
    return Sequences(values, np.array([0, 3, 10, 30]))


@pytest.mark.parametrize("scaler", [Steps(), Automatic()], ids=["Steps", "Automatic"])
def test_channels_are_standardised_over_all_steps(scaler) -> None:
    some = _sequences()
    assert kind_of_inputs(some) == "sequences"
    fitted = scaler.fit(some)
    scaled = fitted.apply(some)
    assert scaled.shape == (3, 20, 2)
    assert fitted.over_steps
    wanted = (some.values - np.nanmean(some.values, 0)) / np.nanstd(some.values, 0)
    wanted = np.where(np.isnan(wanted), 0.0, wanted)  # missing within: the centre
    for place in range(3):
        steps = int(some.lengths[place])
        np.testing.assert_allclose(scaled[place, :steps], wanted[some.offsets[place] :][:steps], atol=1e-5)
        assert np.isnan(scaled[place, steps:]).all()
    one = eqx.filter_jit(fitted)(jnp.asarray(np.asarray(some)[1]))  # the same map, of one example in JAX
    np.testing.assert_allclose(one, scaled[1], atol=1e-5)


def test_room_changes_nothing_and_statistics_are_written_down() -> None:
    some = _sequences()
    fitted = Automatic().fit(some)
    wider = fitted.apply(some.with_longest(50))
    np.testing.assert_array_equal(wider[:, :20], fitted.apply(some))
    assert np.isnan(wider[:, 20:]).all()
    assert from_json(to_json(Steps(Standardise()))) == Steps(Standardise())


def test_another_scaler_alone_is_refused_with_the_remedy() -> None:
    with pytest.raises(gw.RequestError, match=r"sequences are scaled step by step. Wrap the scaler"):
        Standardise().fit(_sequences())
    with pytest.raises(gw.RequestError, match="`Steps` scales `Sequences`"):
        Steps().fit(np.zeros((3, 2)))
