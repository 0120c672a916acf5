"""The type checker of the tests: shapes and kinds of every annotated call, checked as it runs (needs `beartype`).

    from jaxtyping import install_import_hook
    install_import_hook(["gradwise.models", "gradwise.optimisers"], "gradwise.testing.typed.check")

A whole number is accepted where a float is asked, as Python's own typing rules have it.
"""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
