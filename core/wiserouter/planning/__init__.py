"""From estimates and a rate to a choice: the plan, the reserve rule and the policies."""
