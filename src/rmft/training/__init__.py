"""How models learn from their own low-regret trajectories. The only part that optimises."""
