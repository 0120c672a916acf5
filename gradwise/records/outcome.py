"""How a run ended is a value, not an exception.

| name | the run ended because |
|---|---|
| patience | the validation score stopped improving (early stopping) |
| finished | it reached its maximum age |
| out_of_time | `max_time` ran out |
| interrupted | it was interrupted |
| stalled | the line search found no lower point, not even along the gradient |
| behind | a trial of a search was clearly worse than the first one |
| diverged | the loss or a parameter became NaN or infinite |
"""

from dataclasses import dataclass

_SENTENCES = {
    "patience": "stopped by patience at age {age:,} examples",
    "finished": "reached its full length of {age:,} examples",
    "out_of_time": "ran out of time at age {age:,} examples",
    "interrupted": "interrupted at age {age:,} examples",
    "stalled": "found no lower point from age {age:,} examples on",
    "behind": "was clearly behind the first trial at age {age:,} examples",
    "diverged": "diverged at age {age:,} examples",
}


@dataclass(frozen=True)
class Outcome:
    """The end of one run: why, and at which age."""

    name: str
    age_examples: int

    def __post_init__(self) -> None:
        if self.name not in _SENTENCES:
            raise ValueError(f"unknown outcome {self.name!r}; choose from {', '.join(_SENTENCES)}.")

    @property
    def failed(self) -> bool:
        return self.name == "diverged"

    @property
    def resumable(self) -> bool:
        return self.name in {"interrupted", "out_of_time"}

    def __str__(self) -> str:
        return _SENTENCES[self.name].format(age=self.age_examples)
