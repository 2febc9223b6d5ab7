"""What is measured on trajectories: exploration, growth of regret, comparison of samples. No torch."""
