import typing

from gradwise.cli.options import shared_options


def test_every_shared_option_says_what_it_does_in_one_line():
    shared = {
        name: alias for name, alias in vars(shared_options).items() if typing.get_origin(alias) is typing.Annotated
    }
    assert len(shared) >= 19
    for name, alias in shared.items():
        option = alias.__metadata__[0]
        names = [option.default, *option.param_decls]  # typer takes the first word for a default until it is used
        assert names[0].startswith("--"), name
        assert 0 < len(option.help) < 100
        assert option.help.endswith(".")


def test_fit_and_search_take_the_same_words_for_data(gradwise):
    for command in ("fit", "search"):
        said = gradwise(command, "--help").out
        for word in ("--target", "--task", "--drop", "--kind", "--group", "--time", "--weight", "--class-weight"):
            assert word in said
