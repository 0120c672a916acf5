"""Types checked as the tests run: the shapes and kinds of every annotated call (needs `beartype`).

    from tests.runtime_types import check_calls
    check_calls("gradwise.models", "gradwise.optimisers")    # before either is imported

A whole number is accepted where a float is asked, as Python's own typing rules have it.
"""

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check_calls(*packages: str) -> None:
    """From now on, importing these packages or modules makes their functions check what they are called with."""
    install_import_hook(list(packages), "tests.runtime_types.check")
