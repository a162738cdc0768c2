"""WISERouter: budget-aware LLM routing."""
