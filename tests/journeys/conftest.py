"""Journeys are mostly tested through the command line, with its small tables and networks."""

from ..cli.conftest import (  # noqa: F401
    a_run,
    finished,
    finished_numbers,
    finished_study,
    gradwise,
    here,
    program,
    search_words,
    searched,
    table,
    trial_words,
)
