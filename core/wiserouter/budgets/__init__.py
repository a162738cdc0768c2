"""What may be spent: budgets, ledgers, calendar windows and the traffic forecast."""
