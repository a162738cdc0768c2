"""The proxies of these tests run offline, with the prices that LiteLLM brings."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before litellm is imported: it would fetch the map
