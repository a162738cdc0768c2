"""A made-up table in the shape of RouterBench's wide files, and its pickles."""

import numpy as np
import pandas as pd

MODELS = ("maker/small", "large")


def routerbench_like(n=5):
    """Return a frame: texts, scores as objects, responses, costs as floats, in RouterBench's order of columns."""
    frame = {
        "sample_id": [f"made-up.{i}" for i in range(n)],
        "prompt": [f"['Question {i}?', 'Answer:']" for i in range(n)],
        "eval_name": ["made-up"] * n,
    }
    frame |= {name: pd.Series([float((i + k) % 2) for i in range(n)], dtype=object) for k, name in enumerate(MODELS)}
    frame |= {f"{name}|model_response": ["no"] * n for name in MODELS}
    frame |= {f"{name}|total_cost": np.linspace(0.001, 0.002, n) * (1 + k) for k, name in enumerate(MODELS)}
    return pd.DataFrame(frame | {"oracle_model_to_route_to": ["large"] * n})
