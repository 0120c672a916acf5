"""How an option is declared: once, as a field of a request, for the command line, `--help`, TOML files and Python.

    seed: int = option(0, "Random seed.", TRAINING, "N", whole_number(0, 2**32 - 1))

    gradwise fit iris --seed 3           the flag is the field's name, with dashes
    [fit] seed = 3                       the key in a TOML file is the field's name
    FitRequest(data="iris", seed=3)      the same in Python

`read` turns what was written into the field's type, or raises an error that names the option. No library is imported
here, so that `--help` is fast.
"""

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

from ...runtime.errors import RequestError, nearest
from .values import read_flag, read_text, read_texts

ARGUMENT, DATA, TRAINING, SEARCH = "Arguments", "Data", "Training", "Search"
CHECKS, RUN, OUTPUT = "Checks", "Run", "Output"
PANELS = (ARGUMENT, DATA, TRAINING, SEARCH, CHECKS, RUN, OUTPUT)  # in the order of the help
FILE = ""  # no panel: only in the files that gradwise writes


@dataclasses.dataclass(frozen=True)
class Option:
    """What is declared of a field, besides its name, type and default.

    `many`: it may be given several times. `shown` is the default in the help, if the field's own says nothing. An
    option that is not `in_file` exists on the command line only; a `required` argument must be given there.
    """

    help: str
    panel: str
    metavar: str
    read: Callable[[Any, str], Any]
    many: bool
    also: tuple[str, ...] = ()  # more flags
    shown: str = ""
    in_file: bool = True
    required: bool = False

    @property
    def is_repeated(self) -> bool:
        """Whether it says what to do, not where or how: only then it belongs to the command that repeats a run."""
        return self.in_file and self.panel not in (RUN, OUTPUT)


def option(
    default: Any, help: str, panel: str, metavar: str = "", read: Callable[[Any, str], Any] | None = None, **more: Any
) -> Any:
    """A field that is an option; see `Option`. Without `read` it is a flag, a text or texts, as the default is."""
    many = default == () or default == {}
    usual = read_flag if isinstance(default, bool) else read_texts if many else read_text
    declared = Option(help, panel, metavar, read or usual, many, **more)
    made: dict[str, Any] = {"default_factory": dict} if default == {} else {"default": default}
    return dataclasses.field(**made, metadata={"option": declared})


def flag_of(name: str) -> str:
    """The flag of an option.

    >>> flag_of("max_time")
    '--max-time'
    >>> flag_of("from_")  # a word of Python's own has an underscore behind it, as is usual there
    '--from'
    """
    return "--" + name.rstrip("_").replace("_", "-")


def _words(name: str, declared: Option, value: Any) -> Iterator[str]:
    """An option as words of a shell command."""
    if isinstance(value, bool):
        yield flag_of(name if value else f"no_{name}")
        return
    items = [f"{key}={item}" for key, item in value.items()] if isinstance(value, Mapping) else value
    items = items if declared.many else [",".join(items) if isinstance(value, Mapping) else items]
    for item in items:
        yield from (str(item),) if declared.panel == ARGUMENT else (flag_of(name), str(item))


def _plain(value: Any) -> Any:
    """A value of an option, as a value of a TOML file."""
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, (bool, int, float, str, Mapping)) else str(value)


@dataclasses.dataclass(frozen=True)
class Request:
    """What a command is to do: its options, parsed and validated. Its first line is the help of the command."""

    verb: ClassVar[str] = ""
    without: ClassVar[tuple[str, ...]] = ()  # inherited fields that are not options of this command
    always: ClassVar[tuple[str, ...]] = ("seed", "budget")  # told in a command even if it is the default

    @classmethod
    def options(cls) -> dict[str, Option]:
        """The options by name, in the order of the help."""
        found = {field.name: field.metadata.get("option") for field in dataclasses.fields(cls)}
        declared = {name: one for name, one in found.items() if one is not None and name not in cls.without}
        order = (*PANELS, FILE)
        return dict(sorted(declared.items(), key=lambda item: order.index(item[1].panel)))

    @classmethod
    def default(cls, name: str) -> Any:
        """The default of an option."""
        field = next(field for field in dataclasses.fields(cls) if field.name == name)
        return {} if field.default is dataclasses.MISSING else field.default

    @classmethod
    def read(cls, given: Mapping[str, Any], table: Mapping[str, Any] | None = None, source: str = "") -> dict[str, Any]:
        """Options by name: those of the command line, then those in the table of the file `source`."""
        known = cls.options()
        in_file = [name for name, declared in known.items() if declared.in_file]
        chosen: dict[str, Any] = {}
        for key, value in (table or {}).items():
            name = key.replace("-", "_")
            name = f"{name}_" if f"{name}_" in in_file else name
            if name not in in_file:
                raise RequestError(f"{source}: unknown option `{key}` in [{cls.verb}].{nearest(name, in_file)}")
            chosen[name] = known[name].read(value, f"{source}: {key}")
        for name, value in given.items():
            label = known[name].metavar if known[name].panel == ARGUMENT else flag_of(name)
            chosen[name] = known[name].read(value, label)
        return chosen

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The request of a command line."""
        return cls(**cls.read(given))

    def _chosen(self, always: tuple[str, ...]) -> Iterator[tuple[str, Option, Any]]:
        """The options that say what to do and differ from the default."""
        for name, declared in self.options().items():
            value = getattr(self, name)
            if declared.is_repeated and (name in always or value != self.default(name)):
                yield name, declared, value

    def command(self, changes: tuple[str, ...] = (), ranges: Mapping[str, str] | None = None) -> str:
        """The shell command that repeats the request, with these knobs set; equal commands are equal requests."""
        words = ["gradwise", self.verb]
        for name, declared, value in self._chosen(self.always):
            words += [] if declared.panel == FILE else _words(name, declared, value)
        words += [word for change in changes for word in ("--set", change)]
        words += [word for path, prior in (ranges or {}).items() for word in ("--range", f"{path}={prior}")]
        return shlex.join(words)

    def settings(self) -> dict[str, Any]:
        """The contents of a study file, without ranges and recipe: every chosen option, as plain values."""
        return {name: _plain(value) for name, _, value in self._chosen(("data", "budget", "strategy", "seed"))}
