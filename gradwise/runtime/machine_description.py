"""The device and the machine that a run was made on, for its record."""

import datetime
import os
import platform
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Device, cores and versions, for the record."""
    import jax

    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
