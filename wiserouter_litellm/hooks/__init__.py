"""The places where LiteLLM calls us: its callback, its event dispatch and its selection of deployments."""
