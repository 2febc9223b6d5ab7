"""`rmft play`: a person plays the instances that models and algorithms play, in a terminal or on a local page."""
