"""Published scores of the models of the public tables, as prior qualities; none is taken from the tables."""

import csv
from pathlib import Path

FILE = Path(__file__).with_name("published_scores.csv")

RATING_SCALE = 400.0
"""Points of an Elo rating that stand for odds of 10 to 1."""


def prior_qualities(table: str) -> dict[str, float]:
    """Return the prior quality of each listed model: a share as it is, a rating as win rate against the mean rating."""
    with FILE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    ratings = [float(row["score"]) for row in rows if row["scale"] == "rating"]
    typical = sum(ratings) / len(ratings) if ratings else 0.0
    return {
        row["model"]: 1.0 / (1.0 + 10.0 ** ((typical - float(row["score"])) / RATING_SCALE))
        if row["scale"] == "rating"
        else float(row["score"])
        for row in rows
    }
