"""What all tests share: a compilation cache of their own, the data folder, and no silent skips in CI."""

import ctypes
import gc
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Most of the tests' time is XLA's: its older way to compile for a CPU takes half as long as its newer one. Before JAX
# is imported, and for the processes that tests start too. XLA aborts at the name of a flag it does not have any more.
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
RELEASE = tuple(map(int, version("jaxlib").split(".")[:2]))
if RELEASE < (0, 11) and QUICK not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

if "GRADWISE_CACHE" not in os.environ:
    # One folder for all runs of the tests: programs compiled once are read by every later run.
    os.environ["GRADWISE_CACHE"] = str(Path(tempfile.gettempdir()) / "gradwise-test-cache")

from tests.runtime_types import check_calls  # noqa: E402

# The shapes and types that signatures promise are held while the tests run.
check_calls("gradwise.models", "gradwise.criteria", "gradwise.optimisers", "gradwise.data.batches", "gradwise.training")

from gradwise.runtime.compilation import use_compilation_cache  # noqa: E402

use_compilation_cache()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real data sets; tests that need them skip, and say so, where `GRADWISE_DATA` is not set."""
    folder = os.environ.get("GRADWISE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("GRADWISE_DATA does not name a folder of data sets")
    return Path(folder)


def _compile_with(little_effort: bool) -> None:
    """In this process and in those that tests start: a program is compiled alike in both, to the same bits."""
    if jax.config.read("jax_disable_most_optimizations") != little_effort:
        jax.clear_caches()
        jax.config.update("jax_disable_most_optimizations", little_effort)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(little_effort)


@pytest.fixture(autouse=True, scope="module")
def _compiled_with_little_effort(request: pytest.FixtureRequest) -> None:
    """Most programs of the tests are run once on a few numbers: so they take a third less time.

    A module that follows a training at the edge of stability says `COMPILED_WELL = True`.
    """
    _compile_with(little_effort=not getattr(request.module, "COMPILED_WELL", False))


@pytest.fixture(autouse=True, scope="module")
def _generators(request: pytest.FixtureRequest) -> dict[np.random.Generator, Any]:
    """The random generators of a module, each with its state before the first test."""
    found = [value for value in vars(request.module).values() if isinstance(value, np.random.Generator)]
    return {generator: generator.bit_generator.state for generator in found}


@pytest.fixture(autouse=True)
def _same_draws(_generators: dict[np.random.Generator, Any]) -> Iterator[None]:
    """A test draws the same numbers whichever tests of its module ran before: quick ones, slow ones, or none."""
    yield
    for generator, state in _generators.items():
        generator.bit_generator.state = state


_MOST_BYTES = 1.8 * 2**30


def _resident_bytes() -> int:
    statistics = Path("/proc/self/statm")  # of Linux alone; elsewhere programs are kept
    return int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statistics.exists() else 0


@pytest.fixture(autouse=True)
def _room_for_programs() -> Iterator[None]:
    """Lets compiled programs go before a process of the tests takes more than 3 GiB: they pile up otherwise.

    Each also takes dozens of memory maps, and the system aborts a process at 65 530. What is needed again is read from
    the compilation cache; the allocator is asked to give the memory back, which by itself it would keep.
    """
    yield
    if _resident_bytes() > _MOST_BYTES:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("GRADWISE_NO_SKIPS") and skipped and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for report in skipped:
            print(f"\nskipped, which counts as a failure here: {report.nodeid}: {report.longrepr}")
