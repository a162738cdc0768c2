"""What an operator watches: metrics of routers and of their budgets."""
