"""What Snakemake is given: the record of each job, where artifacts are, and what ties a job to its run."""
