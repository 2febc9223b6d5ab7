"""`rmft diff`: what differs between two commits or experiments, and between two experiments of params.yaml."""
