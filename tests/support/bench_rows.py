"""Rows of a bench with given figures, and tables as files."""

import polars as pl


def rows_of(quality, spend_ratio, rates=(1.0, 2.0)):
    """Return rows of two queries each; `quality` and `spend_ratio` are by method, budget and seed."""
    rows = []
    for method, of_budgets in quality.items():
        for b, rate in enumerate(rates):
            for seed, reached in enumerate(of_budgets[b]):
                spend = 2 * rate * spend_ratio[method]
                rows.append(
                    {
                        "method": method, "rate_usd": rate, "seed": seed, "queries": 2, "quality": reached,
                        "capped_quality": reached,
                        "spend_usd": spend, "spend_ratio": spend_ratio[method], "served": 1.0, "calls_per_query": 1.0,
                        "collected_usd": 4.0 if method == "a" else 1.0, "table_usd": 4.0, "bound": 1.0,
                        "reward": [reached] * 2, "prepare_s": 0.0, "fit_s": 0.0, "start_s": 0.0, "decide_us": 1.0,
                        "decide_p99_us": 2.0, "single_at_spend": reached, "serve_s": 0.5,
                    }
                )  # fmt: skip
    return pl.DataFrame(rows)


def write_wide(table, path):
    """Write a dense table as a wide parquet."""
    path.parent.mkdir(exist_ok=True)
    scores = {f"score|{model}": table.reward[:, k] for k, model in enumerate(table.models)}
    costs = {f"cost|{model}": table.cost_usd[:, k] for k, model in enumerate(table.models)}
    pl.DataFrame({"prompt": table.prompts, **scores, **costs}).write_parquet(path)
