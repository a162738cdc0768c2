"""The deployments of a group: the models that they are, their arms, prices and defaults."""
