"""Joins or starts a Ray cluster, with a one-line error if it cannot be reached."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import warnings
from collections.abc import Iterator
from typing import Any

from ...runtime.errors import RequestError, WorkError

_CLIENT = "ray://"
CALL_SECONDS = 5.0  # for a head to take a call
_CLIENT_PORT = 10001
_JOIN_SECONDS = 25.0  # to become part of its cluster
_SILENCE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # every message about a process or a node that died
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of answers that nobody awaits any more
}
_ATTEMPT = """
import logging, sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.CRITICAL)
except BaseException as problem:
    print(" ".join(str(problem).split())[:200])
    sys.exit(1)
"""


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of an address."""
    wrong = RequestError(f"{address!r} is not the address of a Ray cluster. Write ray://host:10001 or host:6379.")
    try:
        parts = urllib.parse.urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("", "ray") or not host or parts.path or (port is None and not parts.scheme):
        raise wrong
    return host, port or _CLIENT_PORT


def _check_reachable(address: str) -> None:
    """Asks before joining: Ray itself tries an absent head for minutes."""
    hint = "Start it with `ray start --head`, or search on this machine: --on workers."
    try:
        socket.create_connection(host_and_port(address), timeout=CALL_SECONDS).close()
    except OSError as problem:
        raise WorkError(f"no Ray head answers at {address} ({problem.strerror or problem}). {hint}") from None
    if address.startswith(_CLIENT):
        return
    command = [sys.executable, "-c", _ATTEMPT, address]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=_JOIN_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise WorkError(f"the server at {address} is not a Ray head, or it cannot be joined. {hint}") from None
    if tried.returncode:
        said = tried.stdout.strip().splitlines()
        raise WorkError(f"the Ray cluster at {address} cannot be joined: {said[-1] if said else 'it ended the call'}")


@contextlib.contextmanager
def quiet_ray() -> Iterator[None]:
    """Keeps Ray's warnings and JAX's about `fork` to themselves (Ray's processes replace themselves at once).

    Ray takes over SIGTERM; it is given back.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


def import_ray() -> Any:
    """Ray, told not to speak on our standard output: what befalls its processes is ours to tell."""
    for name, value in _SILENCE.items():
        os.environ.setdefault(name, value)
    try:
        with quiet_ray():
            import ray
    except ImportError:
        raise RequestError("Ray is not installed. Run: pip install gradwise[ray]") from None
    return ray


def join_cluster(ray: Any, address: str | None, workers: int | None) -> bool:
    """Starts or joins a cluster; False if this process was in it already, and so will stay."""
    if ray.is_initialized():
        where = ray.get_runtime_context().gcs_address
        if address in (None, where):
            return False
        raise RequestError(f"this process already belongs to the Ray cluster at {where}. Call ray.shutdown() first.")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        options |= {"address": "local", "num_cpus": workers or cores, "include_dashboard": False}
    else:
        _check_reachable(address)
        options["address"] = address
    try:
        with quiet_ray():
            ray.init(**options)
    except (ImportError, ValueError) as problem:
        if "ray[client]" in str(problem):
            raise RequestError("Ray was installed without its client. Run: pip install gradwise[ray]") from None
        raise WorkError(
            f"Ray cannot {f'use {address}' if address else 'start'}: {' '.join(str(problem).split())[:200]}"
        ) from None
    except (RuntimeError, OSError) as problem:  # another version, no room, a connection that broke
        what = f"the Ray cluster at {address} cannot be joined" if address else "Ray could not start on this machine"
        raise WorkError(f"{what}: {' '.join(str(problem).split())[:200]}") from None
    return True
