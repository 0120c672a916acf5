"""What `--profile` leaves in a run's folder: `profile.json`, and with `--trace` the folder `trace`.

with tracing_into(folder): ...         what JAX's profiler saw, to be opened in Perfetto (ui.perfetto.dev)
write_profile(profile, folder)
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from ...records.evidence.fit_evidence import Profile
from ...runtime.files import finite, write_whole

PROFILE, TRACE = "profile.json", "trace"


def write_profile(profile: Profile, folder: Path) -> None:
    """Seconds and shares by phase, as JSON."""
    phases = [
        {"name": one.name, "seconds": one.seconds, "share": profile.share(one), "times": one.times}
        for one in profile.phases
    ]
    write_whole(folder / PROFILE, json.dumps(finite({"seconds": profile.seconds, "phases": phases}), indent=2).encode())


@contextmanager
def tracing_into(folder: Path) -> Iterator[None]:
    """Meanwhile JAX's profiler traces what runs; at the end the trace replaces an earlier one in the folder."""
    with tempfile.TemporaryDirectory() as place:
        with jax.profiler.trace(place):
            yield
        old = folder / TRACE
        if old.is_symlink():
            old.unlink()
        shutil.rmtree(old, ignore_errors=True)
        if folder.is_dir():  # nothing was written there by a run that failed
            shutil.copytree(place, old)
