"""Commands that repeat a run, with other options: a shell line, or the call from Python that made the run.

    with_options("gradwise fit iris", "--set model.dropout=0.3")      gradwise fit iris --set model.dropout=0.3
    with_options("gw.fit(data, target='y')", "--folds 10")            gw.fit(data, target="y", folds=10)
    as_check("gradwise fit iris --metric auc --drop id")              gradwise check iris --drop id
    by_recipe("gradwise fit iris --set model.dropout=0.3", seed=7)    gw.fit("iris", seed=7, recipe=recipe)

Commands are written with the options of the shell, because most runs have one; here they become arguments.
"""

import ast
import contextlib
import keyword
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

# What `check` does not take, with a value each.
_NOT_CHECKED = (
    *("class_weight", "metric", "learner", "pretrain", "folds", "watch", "max_time", "range", "budget", "strategy"),
    *("finalists", "seeds", "committee", "batch_size", "space", "plan", "no_examples", "from_", "freeze"),
)
_BY_PATH = ("set", "range")  # options that map paths to values
_NOT_SEARCHED = ("folds", "watch", "max_time", "pretrain", "from_", "freeze", "no_examples")
# What the file of a recipe holds already.
_IN_RECIPE = (
    *("set", "recipe", "model", "optimiser", "criterion", "batches", "scaler", "stopping", "split"),
    *("from_", "freeze"),
)
_FLAGS = ("--unsupervised", "--no-baselines", "--no-examples", "--nested", "--no-nested")  # options without a value
_OF_LAYERS = ("model.layers.", "model.mlp.", "layers.")  # knobs of a network with pre-trained layers
_WHOLE_NUMBERS = ("seed", "folds", "watch", "freeze")


def _name_of(flag: str) -> str:
    """The argument that a flag stands for; a word of Python's own has an underscore behind it."""
    name = flag.removeprefix("--").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def _typed(words: str) -> Any:
    """The value that the words of an option stand for."""
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(words)
    return words


def _call(command: str) -> ast.Call | None:
    """The command as a call from Python; None if it is a shell line."""
    if not command.startswith("gw."):
        return None
    statement = ast.parse(command).body[0]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    return statement.value


def _written(call: ast.Call) -> str:
    return ast.unparse(call).replace("'", '"')


def _by_path(call: ast.Call, name: str, without: str) -> dict[str, Any]:
    """The argument `set` or `range` of a call, without the knobs of a part."""
    given = next((one.value for one in call.keywords if one.arg == name), None)
    found = {} if given is None else dict(ast.literal_eval(given))
    return {path: value for path, value in found.items() if not (without and f"{path}.".startswith(f"{without}."))}


def _shell_line(command: str, options: Sequence[str], without: str) -> str:
    """The line with these options; a knob that it set before is set once, and none of a part left out."""
    again = {tuple(shlex.split(option.partition("=")[0].replace("'", ""))) for option in options}
    words, kept = iter(shlex.split(command)), []
    for word in words:
        pair = [word, next(words, "")] if word.removeprefix("--") in _BY_PATH else [word]
        path = pair[-1].partition("=")[0]
        gone = word == "--set" and without and f"{path}.".startswith(f"{without}.")
        if len(pair) == 1 or not ((word, path) in again or gone):
            kept += pair
    return " ".join([shlex.join(kept), *options])


def with_options(command: str, *options: str, without: str = "") -> str:
    """The command with these options, each as in a shell: `--set PATH=VALUE`, `--folds 10`.

    Knobs of the part `without` are no longer set.
    """
    call = _call(command)
    if call is None:
        return _shell_line(command, options, without)
    given: dict[str, Any] = {}
    for option in options:
        name, _, words = option.removeprefix("--").partition(" ")
        if name in _BY_PATH:
            path, _, value = words.strip("'").partition("=")
            known = given.setdefault(name, _by_path(call, name, without))
            known[path] = _typed(value)
        else:
            given[name.replace("-", "_")] = _typed(words) if words else True
    if without and "set" not in given:
        given["set"] = _by_path(call, "set", without)
    given = {name: value for name, value in given.items() if value != {}}
    kept = [one for one in call.keywords if one.arg not in given and not (without and one.arg == "set")]
    call.keywords = [*kept, *(ast.keyword(name, ast.parse(repr(value)).body[0].value) for name, value in given.items())]  # type: ignore[attr-defined]
    return _written(call)


def _as_other(command: str, verb: str, left_out: Sequence[str]) -> str:
    """The same request of another verb, without these options, each of which has a value.

    Knobs of pre-trained layers go with `--pretrain`, which no other verb takes.
    """
    call = _call(command)
    if call is not None:
        assert isinstance(call.func, ast.Attribute)
        call.func.attr = verb
        given = {path: value for path, value in _by_path(call, "set", "").items() if not path.startswith(_OF_LAYERS)}
        for one in call.keywords:
            if one.arg == "set":
                one.value = ast.parse(repr(given), mode="eval").body
        call.keywords = [one for one in call.keywords if one.arg not in left_out and (one.arg != "set" or given)]
        return _written(call)
    words, kept_words = iter(shlex.split(command)[2:]), ["gradwise", verb]
    for word in words:
        if word.startswith("--") and _name_of(word) in left_out:
            next(words, None)
        elif word != "--set":
            kept_words.append(word)
        elif not (path := next(words, "")).startswith(_OF_LAYERS):
            kept_words += [word, path]
    return shlex.join(kept_words)


def as_check(command: str) -> str:
    """The command that checks what this one trains."""
    for flag in _FLAGS:
        command = command.replace(f" {flag}", "")
    return _as_other(command, "check", _NOT_CHECKED)


def as_search(command: str) -> str:
    """The command that searches around what this one trains."""
    return _as_other(command.replace(" --no-examples", ""), "search", _NOT_SEARCHED)


def _arguments(words: Iterator[str]) -> dict[str, Any]:
    """The options of a shell line as arguments; raises if one lacks its value, and at words that are no options."""
    found: dict[str, list[str]] = {}
    flags: dict[str, Any] = {}
    for word in words:
        name = _name_of(word)
        if not word.startswith("--") or not name.isidentifier():
            raise ValueError(f"`{word}` is no option")
        if word in _FLAGS:
            flags[name] = True
        else:
            found.setdefault(name, []).append(next(words))
    pairs = {"kind": dict(one.split("=", 1) for one in found.pop("kind"))} if "kind" in found else {}
    single = {name: texts[0] if len(texts) == 1 else texts for name, texts in found.items()}
    typed = {name: int(str(text)) if name in _WHOLE_NUMBERS else text for name, text in single.items()}
    return {**typed, **pairs, **flags}


def _called_from_shell(command: str) -> ast.Call | None:
    """The call that does what a shell line of `gradwise fit` does; None for other lines."""
    try:
        program, verb, data, *options = shlex.split(command)
        arguments = _arguments(iter(options))
    except (ValueError, StopIteration):
        return None
    given = ", ".join([repr(data), *(f"{name}={value!r}" for name, value in arguments.items())])
    return _call(f"gw.fit({given})") if (program, verb) == ("gradwise", "fit") else None


def by_recipe(command: str, seed: int) -> str:
    """The call of `gw.fit` that repeats a run by its `recipe`, which holds what the command set."""
    call = _call(command) or _called_from_shell(command) or _call(f"gw.fit(data, seed={seed})")
    assert call is not None
    call.keywords = [one for one in call.keywords if one.arg not in _IN_RECIPE]
    call.keywords.append(ast.keyword("recipe", ast.Name("recipe")))
    return _written(call)
