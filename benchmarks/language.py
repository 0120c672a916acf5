"""Language models of the Penn Treebank (Mikolov's preparation: 10 000 words, 930 000 of training), by perplexity.

    GRADWISE_DATA=... python benchmarks/language.py --which feed-forward --out language.json
    GRADWISE_DATA=... python benchmarks/language.py --which recurrent --out language.json

| setting                | network                                                                          |
|------------------------|----------------------------------------------------------------------------------|
| `feed-forward`         | five words, embeddings of 200 shared with the output, 400 units, dropout 0.4     |
| `feed-forward-sampled` | embeddings of 150, 300 units, dropout 0.3; 1000 sampled words: for a processor   |
| `recurrent`            | two layers of 200 LSTM cells, 20 streams of 20 steps, dropout 0.3                |
| `zaremba-small`        | the same without dropout, 13 epochs of SGD: Zaremba, Sutskever and Vinyals 2014  |

Epochs are chosen by the validation text, which the script reads after each; the test text is read once, at the end.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import jax

import gradwise as gw
from gradwise import language

_LSTM = gw.RecurrentLanguageModel(cell=gw.Lstm(), size=200, units=(200, 200))


def _adam(rate: float) -> gw.Clipped:
    return gw.Clipped(gw.Adam(rate, schedule=gw.OneCycle()), norm=1.0)


def settings(which: str) -> dict[str, Any]:
    """What `language.fit` is given."""
    windows: dict[str, Any] = {"batch": 32, "steps": 32, "optimiser": _adam(0.002)}
    if which == "feed-forward":
        model = gw.FeedForwardLanguageModel(context=5, size=200, units=(400,), tied=True, dropout=0.4)
        return {"model": model, "epochs": 15.0, **windows}
    if which == "feed-forward-sampled":
        model = gw.FeedForwardLanguageModel(context=5, size=150, units=(300,), tied=True, dropout=0.3)
        return {"model": model, "epochs": 10.0, "criterion": gw.SampledNextWord(samples=1000), **windows}
    if which == "recurrent":
        dropped = gw.replace(_LSTM, "dropout", 0.3)
        return {"model": dropped, "epochs": 25.0, "batch": 20, "steps": 20, "optimiser": _adam(0.003)}
    # The paper sums losses over 20 steps, where the mean has a gradient a twentieth as large, and halves the rate after
    # each epoch from the fifth on; here it falls along a cosine.
    rate = gw.Sgd(20.0, schedule=gw.Cosine())
    return {"model": _LSTM, "epochs": 13.0, "batch": 20, "steps": 20, "optimiser": gw.Clipped(rate, norm=0.25)}


def run(which: str, given: dict[str, Any], seed: int, words: int) -> dict[str, Any]:
    """One training: perplexities, by epoch too, and seconds. `words` cuts the training text, to time it."""
    folder = Path(os.environ["GRADWISE_DATA"]) / "lm_ptb"
    texts = {part: language.read_tokens(folder / f"ptb.{part}.txt.gz") for part in ("train", "valid", "test")}
    begun = time.monotonic()

    def watch(row: dict[str, Any]) -> None:
        losses = f"loss {row['train_loss']:.4f}  valid {row['valid_loss']:.4f}"
        print(f"epoch {row['epoch']:.2f}  {losses}  {row['seconds']:.0f} s", flush=True)

    model = language.fit(
        texts["train"][: words or None],
        valid=texts["valid"],
        test=texts["test"],
        seed=seed,
        options=gw.RunOptions(watch=watch),
        **given,
    )
    history, judged = model.history, folder.parent / "word_similarity"
    return {
        "which": which,
        "recipe": json.loads(gw.to_json(model.record.recipe)),
        "seed": seed,
        "words": len(texts["train"][: words or None]),
        "valid_perplexity": model.valid_perplexity,
        "test_perplexity": model.test_perplexity,
        "wordsim353": vars(model.word_similarity(judged / "wordsim353.tsv")),
        "simlex999": vars(model.word_similarity(judged / "simlex999.txt")),
        "analogies": vars(model.analogies(judged / "questions-words.txt.gz")),
        "best_epoch": float(history["epoch"][history["valid_loss"].idxmin()]),
        "valid_by_epoch": [round(float(value), 2) for value in history["valid_perplexity"]],
        "training_seconds": round(float(history["seconds"].iloc[-1]), 1),
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("feed-forward", "feed-forward-sampled", "recurrent", "zaremba-small")
    parser.add_argument("--which", choices=names, required=True)
    parser.add_argument("--epochs", type=float, help="length of the run, if not that of the setting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--words", type=int, default=0, help="training words, to time a run; 0: all")
    parser.add_argument("--out", type=Path, default=Path("language.json"))
    asked = parser.parse_args()
    given = settings(asked.which)
    if asked.epochs is not None:
        given["epochs"] = asked.epochs
    earlier = json.loads(asked.out.read_text())["runs"] if asked.out.is_file() else []
    made = run(asked.which, given, asked.seed, asked.words)
    found = {
        "command": f"python benchmarks/language.py --which {asked.which}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}",
        "date": time.strftime("%Y-%m-%d"),
        "runs": [*earlier, made],
    }
    asked.out.write_text(json.dumps(found, indent=1))
    print({name: made[name] for name in ("which", "valid_perplexity", "test_perplexity", "seconds")})


if __name__ == "__main__":
    main()
