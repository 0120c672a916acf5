"""One declaration of every option: field, flag, key of a TOML file, help and shell command agree."""

import ast
import dataclasses
import re
import shlex
from pathlib import Path

import pytest
import typer

from gradwise.cli import main
from gradwise.journeys.requests.options import ARGUMENT, FILE, PANELS, Request, flag_of, option
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.budget import Budget

HOUSE = Path(main.__file__).parents[1]
EVERY = [(request, name) for request in main.REQUESTS for name in request.options()]


def _parameters(request: type[Request]) -> dict[str, object]:
    command = typer.main.get_command(main.build_app([request.verb])).commands[request.verb]
    return {parameter.name: parameter for parameter in command.params}


@pytest.mark.parametrize("request_", main.REQUESTS, ids=lambda request: request.verb)
def test_the_command_line_has_exactly_the_options_of_the_request(request_):
    declared = {name: one for name, one in request_.options().items() if one.panel != FILE}
    parameters = _parameters(request_)
    parameters.pop("help", None)
    assert set(parameters) == set(declared)
    for name, one in declared.items():
        if one.panel == ARGUMENT:
            assert parameters[name].metavar == one.metavar
        else:
            assert parameters[name].opts == [flag_of(name), *one.also]
    assert list(declared.values()) == sorted(declared.values(), key=lambda one: PANELS.index(one.panel))


@pytest.mark.parametrize(("request_", "name"), EVERY, ids=lambda one: getattr(one, "verb", one))
def test_every_option_says_what_it_does_and_its_default_is_of_its_type(request_, name):
    one = request_.options()[name]
    assert 0 < len(one.help) < 120
    assert one.help.endswith(".")
    assert (one.metavar == "") == (isinstance(request_.default(name), bool) or name in {"nested", "merged"})
    default = request_.default(name)
    if one.in_file and default not in (None, "", 0, Budget()):  # nothing: 0 folds are "off"
        assert one.read(default, name) == default


def test_fields_that_are_no_options_are_no_flags():
    for request in main.REQUESTS:
        names = {field.name for field in dataclasses.fields(request)}
        assert set(request.without) <= names
        assert set(request.options()) <= names - set(request.without)


def test_a_toml_file_has_the_keys_of_the_fields():
    for request in main.REQUESTS:
        for name, one in request.options().items():
            if one.in_file:
                with pytest.raises(RequestError, match=rf"run.toml: {name}\b"):
                    request.read({}, {name: object()}, "run.toml")
            else:
                with pytest.raises(RequestError, match=rf"unknown option `{name}` in \[{request.verb}\]"):
                    request.read({}, {name: "x"}, "run.toml")


def test_no_other_module_declares_options():
    homes = {"training_requests.py", "study_requests.py"}
    for path in HOUSE.rglob("*.py"):
        calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if path.name not in homes:
            assert "option" not in calls, path
        if path != HOUSE / "cli" / "main.py":
            assert not [call for call in calls if re.fullmatch(r"typer\.(Option|Argument)", call)], path


@dataclasses.dataclass(frozen=True)
class Errand(Request):
    """Fetch things."""

    verb = "fetch"
    what: tuple[str, ...] = option((), "What to fetch.", ARGUMENT, "THING", required=True)
    weights: dict[str, str] = option({}, "Weights.", "Data", "K=V", read=lambda value, name: dict(value))
    gently: bool = option(False, "Gently.", "Training")
    way: bool | None = option(None, "Which way.", "Training", read=lambda value, name: value)
    place: str | None = option(None, "Where from.", "Run", "PLACE")


def test_a_command_and_settings_repeat_what_is_not_the_default():
    errand = Errand(what=("a b", "c"), weights={"a": "1", "b": "2"}, gently=True, way=False, place="shop")
    words = ["gradwise", "fetch", "a b", "c", "--weights", "a=1", "--weights", "b=2", "--gently", "--no-way"]
    assert shlex.split(errand.command()) == words
    assert shlex.split(errand.command(("x=1",), {"y": "log(1, 2)"})) == [
        *words,
        "--set",
        "x=1",
        "--range",
        "y=log(1, 2)",
    ]
    assert errand.settings() == {"what": ["a b", "c"], "weights": {"a": "1", "b": "2"}, "gently": True, "way": False}
    assert Errand(what=("a",)).command() == "gradwise fetch a"
    assert Errand.of({"what": ["a"], "place": "shop"}) == Errand(what=("a",), place="shop")
    with pytest.raises(RequestError, match=r"THING 3: expected text"):
        Errand.of({"what": [3]})
    with pytest.raises(RequestError, match=r"--place 3: expected text"):
        Errand.of({"place": 3})
