"""How a run ended is a value, not an exception.

| name | the run ended because |
|---|---|
| patience | no better validation score was seen for as long as patience allowed |
| finished | it reached the age it was given |
| out_of_time | `max_time` ran out |
| interrupted | somebody stopped it |
| stalled | the line search found no lower point, along the gradient either |
| behind | a trial of a search was clearly worse than the first one |
| diverged | the loss or a parameter was no longer a number |
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
            raise ValueError(f"a run does not end with {self.name!r}; it is one of: {', '.join(_SENTENCES)}.")

    @property
    def failed(self) -> bool:
        return self.name == "diverged"

    @property
    def resumable(self) -> bool:
        return self.name in {"interrupted", "out_of_time"}

    def __str__(self) -> str:
        return _SENTENCES[self.name].format(age=self.age_examples)
