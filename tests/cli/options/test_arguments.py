"""Every word of the command line says what it does."""

import typing

import typer

from gradwise.cli.options import arguments


def test_every_option_says_what_it_does_in_one_line():
    aliases = {name: alias for name, alias in vars(arguments).items() if typing.get_origin(alias) is typing.Annotated}
    assert len(aliases) >= 50
    for name, alias in aliases.items():
        option = alias.__metadata__[0]
        assert 0 < len(option.help) < 120, name
        assert option.help.endswith((".", "?")), name
        if isinstance(option, typer.models.OptionInfo):
            names = [option.default, *option.param_decls]  # typer takes the first word for a default until it is used
            assert names[0].startswith("--"), name


def test_fit_and_search_take_the_same_words_for_data(gradwise):
    for command in ("fit", "search"):
        said = gradwise(command, "--help").out
        for word in ("--target", "--task", "--drop", "--kind", "--group", "--time", "--weight", "--class-weight"):
            assert word in said
