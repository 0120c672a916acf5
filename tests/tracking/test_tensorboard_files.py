"""The event files, read by TensorBoard itself."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from gradwise.tracking.tracker import curves_of


def read(folder):
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def points(found, name):
    return [(event.step, event.value) for event in found.Scalars(name)]


def settings(found):
    contents = found.PluginTagToContent(metadata.PLUGIN_NAME)[metadata.SESSION_START_INFO_TAG]
    values = metadata.parse_session_start_info_plugin_data(contents).hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


def test_every_curve_is_there_against_age(tracked):
    found = read(tracked.folder / "events")
    for name in curves_of(tracked.rows[0]):
        expected = [(row["age_examples"], pytest.approx(row[name], rel=1e-6)) for row in tracked.rows]
        assert points(found, name) == expected
    last = tracked.rows[-1]["age_examples"]
    assert points(found, "test_error_rate") == [(last, pytest.approx(tracked.record.test))]


def test_the_recipe_is_there_as_hyper_parameters(tracked):
    about = settings(read(tracked.folder / "events"))
    assert about["optimiser"] == "Sgd"
    assert about["optimiser.learning_rate"] == 0.1
    assert about["seed"] == 0


def test_each_trial_has_a_folder_of_its_own(tracked_search):
    main = read(tracked_search.folder / "events")
    scores = [(row["trial"], pytest.approx(row["score"])) for row in tracked_search.rows]
    assert points(main, "score") == scores
    for trial in tracked_search.record.trials:
        found = read(tracked_search.folder / "events" / f"trial-{trial.number:04}")
        assert settings(found) == trial.values
        expected = list(zip(trial.curve["age_examples"], map(pytest.approx, trial.curve["valid_score"]), strict=True))
        assert points(found, "valid_score") == expected
        assert points(found, "score") == [(trial.age_examples, pytest.approx(trial.score))]


def test_a_training_that_failed_leaves_the_rows_before(failed):
    assert len(points(read(failed / "events"), "valid_loss")) == 1
