"""`wiserouter arena`: RouterArena's score, and the files of a submission."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wiserouter.cli.output import err, out, print_json
from wiserouter.pricing.amounts import usd
from wiserouter.router import WiseRouter

app = typer.Typer(help="RouterArena: the score of its board, and the files of a submission.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def score(
    accuracy: Annotated[float, typer.Option(help="Mean accuracy, from 0 to 1.")],
    cost: Annotated[float, typer.Option(help="USD per 1,000 queries.")],
    as_json: AsJson = False,
) -> None:
    """Print the score of an accuracy at a cost.

    Example: wiserouter arena score --accuracy 0.7814 --cost 0.27
    """
    from wiserouter.evaluation.arena.score import arena_score

    value = 100 * arena_score(accuracy, cost)
    if as_json:
        return print_json({"accuracy": accuracy, "usd_per_1000": cost, "score": value})
    return out.print(f"{value:.2f}", highlight=False)


@app.command()
def export(
    artifact: Annotated[
        Path, typer.Argument(help="A router fitted on other data, over models that RouterArena knows.")
    ],
    queries: Annotated[Path, typer.Option(help="RouterArena's dataset/router_data.json.")],
    paraphrases: Annotated[Path, typer.Option(help="Its dataset/router_robustness.json.")],
    name: Annotated[str, typer.Option(help="Name of the router on the board.")],
    cost: Annotated[float, typer.Option(help="The budget, in USD per 1,000 queries.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The clone of RouterArena to write into.")],
    as_json: AsJson = False,
) -> None:
    """Choose a model for every query of RouterArena, and write the files of a submission; no model is called.

    Example: wiserouter arena export support.wise --queries dataset/router_data.json
    --paraphrases dataset/router_robustness.json --name wiserouter --cost 0.27 -o RouterArena
    """
    from wiserouter.evaluation.arena.submission import N_PARAPHRASES, N_QUERIES, read_queries, submit

    asked, others = read_queries(queries), read_queries(paraphrases)
    for what, found, wanted in (("queries", len(asked), N_QUERIES), ("paraphrases", len(others), N_PARAPHRASES)):
        if found != wanted:
            err.print(f"The board asks for {wanted:,} {what}, and this file has {found:,}.", highlight=False)
    made = submit(name, lambda: WiseRouter.load(artifact, seed=0), asked, others, cost, output)
    if as_json:
        return print_json(
            {
                "files": [str(file) for file in made.files],
                "queries": len(made.choices),
                "paraphrases": len(made.paraphrased),
                "expected_usd": made.expected_usd,
                "robustness": made.robustness,
            }
        )
    for file in made.files:
        out.print(str(file), highlight=False)
    stable = "" if made.robustness is None else f"; {made.robustness:.1%} of the paraphrases keep the model"
    out.print(f"{len(made.choices):,} choices, expected to cost {usd(made.expected_usd)}{stable}.", highlight=False)
    return None
