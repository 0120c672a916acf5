"""The machine, described for the record."""

import json

import jax

from gradwise.runtime import machine_description


def test_the_description_names_device_and_versions() -> None:
    told = machine_description.describe_machine()
    assert told["jax"] == jax.__version__
    assert told["device"].startswith(jax.default_backend())
    assert told["cores"] >= 1
    json.dumps(told)
