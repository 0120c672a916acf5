"""Recordings as sequences of log-mel spectra: what a listener hears in each hundredth of a second.

    load_folder(Path("words"), RECORDINGS)       X, `Sequences` of 40 bands in decibels, and class
    log_mel(samples, rate=8000)                  (steps, 40)

Every recording is first resampled to 16 kHz, so that one trained on is like one to predict, whatever made them. A step
is a window of 25 ms, 10 ms after the one before: the power of its spectrum, in 40 triangular bands of equal width on
the mel scale (Stevens, Volkmann and Newman 1937) from 20 Hz to 8 kHz. Channels of a recording are averaged.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from ....runtime import memory
from ....runtime.errors import RequestError
from ....specs.sequences import Sequences
from .class_folders import FileKind, Shape

RATE = 16_000
BANDS = 40
_WINDOW, _HOP, _TRANSFORM = 400, 160, 512  # samples
_LOWEST = 20.0  # Hz
_FLOOR = 1e-10  # of power: silence is -100 dB


def mel(frequency: np.ndarray) -> np.ndarray:
    """The pitch that is heard at a frequency in Hz."""
    return np.asarray(2595.0 * np.log10(1.0 + np.asarray(frequency) / 700.0))


@cache
def _filters() -> np.ndarray:
    """The weights (bands, frequencies): triangles, each from the middle of one neighbour to that of the other."""
    corners = np.linspace(mel(np.asarray(_LOWEST)), mel(np.asarray(RATE / 2)), BANDS + 2)
    pitch = mel(np.fft.rfftfreq(_TRANSFORM, 1 / RATE))
    rise = (pitch - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    fall = (corners[2:, None] - pitch) / (corners[2:] - corners[1:-1])[:, None]
    return np.clip(np.minimum(rise, fall), 0.0, None)


def log_mel(samples: np.ndarray, rate: int) -> np.ndarray:
    """The spectra (steps, bands) in decibels of samples between -1 and 1; a recording has at least one step."""
    from scipy import fft, signal

    if rate != RATE:
        common = math.gcd(rate, RATE)
        samples = signal.resample_poly(samples, RATE // common, rate // common)
    samples = np.pad(samples, (0, max(0, _WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_HOP]
    spectra = fft.rfft(frames * signal.get_window("hann", _WINDOW), _TRANSFORM)
    power = np.abs(spectra) ** 2 @ _filters().T
    return np.asarray(10.0 * np.log10(np.maximum(power, _FLOOR)), np.float32)


def _samples(path: Path) -> tuple[int, np.ndarray]:
    """The rate of a recording and its samples between -1 and 1, the mean of all channels."""
    from scipy.io import wavfile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of notes between the samples
            rate, found = wavfile.read(path)
    except (OSError, ValueError, EOFError, struct.error, TypeError) as problem:
        reason = " ".join(str(problem).replace(str(path), "the file").split())[:100] or "it ends too early"
        raise RequestError(f"{path} is not a recording that can be read ({reason}): replace or remove it.") from None
    if found.size == 0 or rate <= 0:
        raise RequestError(f"{path} has no samples: remove it.")
    samples = found.reshape(len(found), -1).astype(np.float64)
    if found.dtype.kind in "iu":
        half = 2.0 ** (8 * found.dtype.itemsize - 1)
        samples = (samples - half * (found.dtype.kind == "u")) / half
    if not np.isfinite(samples).all():
        raise RequestError(f"{path} has samples that are no finite numbers: write it again.")
    return int(rate), samples.mean(axis=1)


def _stacked(files: Sequence[Path], shape: Shape) -> tuple[Sequences, tuple[str, ...]]:
    """The spectra of all recordings, and a warning if their rates differ: the bands that some lack tell them apart."""
    size = sum(file.stat().st_size for file in files if file.exists())  # of spectra too: about one byte for each
    memory.require_memory(2 * size, f"{len(files)} recordings need", "Use fewer or shorter recordings.", share=0.8)
    rates, spectra = [], []
    for file in files:
        rate, samples = _samples(file)
        rates.append(rate)
        spectra.append(log_mel(samples, rate))
    told: tuple[str, ...] = ()
    if len(set(rates)) > 1:
        low = files[int(np.argmin(rates))]
        told = (
            f"recordings of {', '.join(f'{rate:,}' for rate in sorted(set(rates)))} Hz: above {min(rates) // 2:,} Hz "
            f"some are silent, first {low}. If classes were recorded at different rates, resample all to the lowest",
        )
    return Sequences.from_list(spectra), told


RECORDINGS = FileKind("recording", (".wav", ".wave"), _stacked)
