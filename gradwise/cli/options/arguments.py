"""Every argument and option of the command line, each with its one line of help.

Only typer is imported here, as in `main.py`: help must come at once. What the words mean is read in `fit_options` and
`search_options`.
"""

from typing import Annotated, Any, TypeAlias

import typer

DATA, TRAIN, RUN, SAY = "The data", "Training", "The run", "What is said"
SEARCH, QUESTION = "The search", "Instead of a search"


def option(*names: str, panel: str, help: str, metavar: str = "") -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


Texts: TypeAlias = list[str] | None
Text: TypeAlias = str | None

Target = Annotated[Texts, option("--target", panel=DATA, metavar="COLUMN", help="What to predict; repeatable.")]
Task = Annotated[
    Text, option("--task", panel=DATA, metavar="KIND", help="classes, labels or numbers; else by the values.")
]
Drop = Annotated[Texts, option("--drop", panel=DATA, metavar="COLUMN", help="Leave a column out; repeatable.")]
Kind = Annotated[
    Texts,
    option("--kind", panel=DATA, metavar="COLUMN=KIND", help="Read it as number, category or date; repeatable."),
]
Group = Annotated[Text, option("--group", panel=DATA, metavar="COLUMN", help="Keep rows of one group in one part.")]
Time = Annotated[Text, option("--time", panel=DATA, metavar="COLUMN", help="Learn from the past, judge by the newest.")]
Weight = Annotated[Text, option("--weight", panel=DATA, metavar="COLUMN", help="How much each row counts.")]
ClassWeight = Annotated[
    Text, option("--class-weight", panel=DATA, metavar="WEIGHTS", help="balanced, or class=weight,class=weight.")
]
Test = Annotated[Text, option("--test", panel=DATA, metavar="FILE", help="A fixed test set, in DATA's form.")]
Metric = Annotated[
    Text,
    option(
        "--metric",
        panel=TRAIN,
        metavar="NAME",
        help="error_rate, balanced_error_rate, log_loss or auc; rmse, mae or r2 for numbers.",
    ),
]
SearchMetric = Annotated[
    Text,
    option(
        "--metric",
        panel=TRAIN,
        metavar="NAME",
        help="As for fit; features are chosen by their learner's own score, or by probe_error_rate or probe_rmse.",
    ),
]
Seed = Annotated[Text, option("--seed", panel=TRAIN, metavar="N", help="All randomness comes from it. Default: 0.")]
Sets = Annotated[
    Texts,
    option(
        "--set",
        panel=TRAIN,
        metavar="PATH=VALUE",
        help="Turn a knob, such as optimiser.learning_rate=0.03; --dry-run lists them; repeatable.",
    ),
]
Out = Annotated[Text, option("--out", panel=RUN, metavar="DIR", help="The run's folder. Default: runs/NAME-TIME.")]
Resume = Annotated[bool, option("--resume", panel=RUN, help="Go on with the run in --out.")]
Overwrite = Annotated[bool, option("--overwrite", panel=RUN, help="Replace the run in --out.")]
DryRun = Annotated[bool, option("--dry-run", panel=SAY, help="Say what would be done, and the data as understood.")]
Json = Annotated[bool, option("--json", panel=SAY, help="One JSON object on standard output.")]
Quiet = Annotated[bool, option("--quiet", "-q", panel=SAY, help="One line, no progress.")]
NoReport = Annotated[bool, option("--no-report", panel=SAY, help="Write no report.html.")]

FitData = Annotated[
    Text,
    typer.Argument(
        metavar="DATA",
        help="A file (.csv .tsv .parquet .npz .npy .svm .idx, .gz too), a named set (digits, iris, ...), or - .",
    ),
]
Unsupervised = Annotated[
    bool, option("--unsupervised", panel=TRAIN, help="Learn features of the inputs; look at no target.")
]
Learner = Annotated[
    Text,
    option(
        "--learner",
        panel=TRAIN,
        metavar="KIND:UNITS",
        help="How to learn features: denoising, plain, rbm, ... Default: denoising:256.",
    ),
]
Pretrain = Annotated[
    Text,
    option(
        "--pretrain",
        panel=TRAIN,
        metavar="LAYERS",
        help="Learn layers first, then train them together: denoising:1000x3, or rbm:500,denoising:250.",
    ),
]
FitFolds = Annotated[Text, option("--folds", panel=TRAIN, metavar="K", help="Estimate by k-fold cross-validation too.")]
Watch = Annotated[
    Text,
    option(
        "--watch",
        panel=TRAIN,
        metavar="UPDATES",
        help="Record what flows through the layers every so many updates, for the report: 100.",
    ),
]
Config = Annotated[
    Text,
    option("--config", panel=TRAIN, metavar="FILE", help="A TOML file: a table fit for options, one for each part."),
]
MaxTime = Annotated[
    Text, option("--max-time", panel=RUN, metavar="TIME", help="Train no longer than this: 90s, 10min, 2h.")
]
Checkpoint = Annotated[
    Text,
    option("--checkpoint", panel=RUN, metavar="SECONDS", help="Time between checkpoints. Default: 10."),
]
FitOn = Annotated[Text, option("--on", panel=RUN, metavar="DEVICE", help="cpu or gpu. Default: the best there is.")]
SearchData = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA", help="As for fit; with --merge, the folders or stores of studies."),
]
Budget = Annotated[
    Text,
    option("--budget", panel=SEARCH, metavar="B", help="A time (60s, 2h) or '32 trials'. Default: 10min."),
]
Trials = Annotated[Text, option("--trials", panel=SEARCH, metavar="N", help="So many trials; +N: more than there are.")]
Strategy = Annotated[
    Text,
    option(
        "--strategy",
        panel=SEARCH,
        metavar="NAME",
        help="recommended (default), random, sobol, grid, grids, coordinate, zoom, halving, pbt, forest, gp, tpe, "
        "cmaes or layerwise.",
    ),
]
Ranges = Annotated[
    list[str] | None,
    option(
        "--range",
        panel=SEARCH,
        metavar="PATH=RANGE",
        help="Search a knob: log(1e-4, 1e-1), integers(16, 1024), choice(Tanh, Rectifier), ...; repeatable.",
    ),
]
SearchSets = Annotated[
    list[str] | None,
    option("--set", panel=SEARCH, metavar="PATH=VALUE", help="Turn a knob and do not search it; repeatable."),
]
Study = Annotated[
    Text,
    option(
        "--study",
        "--config",
        panel=SEARCH,
        metavar="FILE",
        help="A study file (TOML), such as a study's study.toml.",
    ),
]
SearchFolds = Annotated[
    Text, option("--folds", panel=SEARCH, metavar="K", help="Folds that judge each trial; 1: one part.")
]
Finalists = Annotated[
    Text,
    option("--finalists", panel=SEARCH, metavar="N", help="Settings in the finals, where there are any. Default: 3."),
]
Seeds = Annotated[Text, option("--seeds", panel=SEARCH, metavar="N", help="Seeds for each of them. Default: 5.")]
Committee = Annotated[
    Text,
    option(
        "--committee",
        panel=SEARCH,
        metavar="KIND",
        help="What answers: ensemble (default), best, cheapest, none; with finals: seeds, bagging, inputs, contenders.",
    ),
]
Nested = Annotated[
    bool | None,
    typer.Option(
        "--nested/--no-nested",
        rich_help_panel=SEARCH,
        show_default=False,
        help="Double cross-validation. Default: for small sets without a test set, after finals.",
    ),
]
BatchSize = Annotated[
    Text,
    option(
        "--batch-size",
        panel=SEARCH,
        metavar="B",
        help="The mini-batch size; auto: chosen at the end, by time, then tuned together with the rate.",
    ),
]
Merge = Annotated[bool, option("--merge", panel=QUESTION, help="Join studies of the same data into --out.")]
Challenge = Annotated[
    Text,
    option("--challenge", panel=QUESTION, metavar="PATH=V,V", help="A knob's value against others, seed by seed."),
]
Compare = Annotated[
    Text,
    option("--compare", panel=QUESTION, metavar="PATH=V,V", help="The same, all else searched for each value."),
]
Distribution = Annotated[
    Text,
    option("--distribution", panel=QUESTION, metavar="N", help="One recipe with N seeds: how much is luck?"),
]
Store = Annotated[
    Text,
    option("--store", panel=RUN, metavar="URL", help="Keep trials in sqlite:///FILE or postgresql://HOST/NAME."),
]
Name = Annotated[Text, option("--name", panel=RUN, metavar="NAME", help="What the study is called in --store.")]
SearchOn = Annotated[
    Text,
    option("--on", panel=RUN, metavar="WHO", help="here, cpu, gpu, workers:N, ray or ray://HOST:PORT."),
]
CheckData = Annotated[
    Text,
    typer.Argument(
        metavar="DATA|MODULE:FUNCTION|RUN",
        help="Data as for fit; your own problem (file.py:make_problem or package.module:make_problem); or a run.",
    ),
]
CheckSets = Annotated[
    list[str] | None,
    option(
        "--set",
        panel=TRAIN,
        metavar="PATH=VALUE",
        help="Turn a knob, as in fit; gradwise fit DATA --dry-run lists them; repeatable.",
    ),
]
Only = Annotated[
    list[str] | None,
    option("--only", panel=RUN, metavar="CHECK", help="Run only these checks: gradient, or data,gradient; repeatable."),
]
Code = Annotated[str, typer.Argument(metavar="CODE", help="The code of a finding, such as GW101.")]
PredictRun = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or a model.safetensors file.")]
PredictData = Annotated[str, typer.Argument(metavar="DATA", help="New rows: a file with the network's columns, or - .")]
PredictOut = Annotated[str, typer.Option("--out", metavar="FILE", help="Where to; - is standard output.")]
Form = Annotated[
    Text,
    typer.Option("--format", metavar="FORM", help="csv, parquet or json. Default: by the ending of --out, else csv."),
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="A column with the probability of each class, too.")
]
Keep = Annotated[list[str] | None, typer.Option("--keep", metavar="COLUMN", help="Copy a column of DATA; repeatable.")]
PredictQuiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing beside the predictions.")]
ReportRun = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")]
ReportOut = Annotated[Text, typer.Option("--out", metavar="FILE", help="Where to. Default: report.html in the folder.")]
ReportJson = Annotated[bool, typer.Option("--json", help="The result as one JSON object on standard output.")]
