"""Checks before a run: no artifact was edited by hand, and jobs can write; then the fork server starts.

A run that fails or is stopped says so in its last line.
"""


onstart:
    to_do = [job for job in workflow.dag.needrun_jobs() if job.shellcmd]
    outputs = [path for job in to_do for path in job.output]
    or_stop(refuse_other_targets, outputs, set(artifacts()))
    or_stop(refuse_read_only, outputs)
    up_to_date = [job for job in workflow.dag.jobs if job.shellcmd and not workflow.dag.needrun(job)]
    if not workflow.local_exec:
        or_stop(refuse_own_server, [job.params.settings for job in to_do])
    or_stop(refuse_unrecorded, [path for job in up_to_date for path in job.output if path in NO_RECORD])
    or_stop(write_job_list, to_do, up_to_date)
    if workflow.local_exec and not IN_CONDA:  # the server's forks have the libraries of this environment
        forkserver.start([stage_of(job) for job in to_do], ENVIRONMENT)
    if workflow.local_exec:
        # With a limit to jobs a second, 100 unless said otherwise, Snakemake 9 looks for jobs not only when one has ended
        # but again a second after each time that it looked, so ever more often (snakemake/snakemake#3744).
        workflow.scheduler.job_rate_limiter = None
    let_sigterm_in(workflow.scheduler)


onerror:
    say_last(workflow.scheduler, len(workflow.dag))


def artifacts():
    """Return every artifact that the workflow makes, by default, on request or on demand."""
    return [*targets.everything(PARAMS), *paths.on_demand(PARAMS)]


def target_names():
    """Return the names that `snakemake NAME` takes: rules without wildcards, and artifacts."""
    named = [rule.name for rule in workflow.rules if not rule.has_wildcards()]
    return [*named, *artifacts()]


if workflow.is_main_process and not workflow.output_settings.verbose:
    logger.addFilter(BriefErrors(target_names))


# Snakemake would take a file that was edited by hand for what a job wrote. `rmft lineage --all` says so itself.
NO_RECORD = []
if workflow.is_main_process and not AUDIT and not OTHER_RUN:
    NO_RECORD = without_record(targets.requested(PARAMS))
    if NO_RECORD:
        left = f"{len(NO_RECORD)} results on request have no record of what made them, as after going to another commit"
        print(f"rmft: warning: {left}, and are left alone, such as {NO_RECORD[0]}", file=sys.stderr)
    or_stop(refuse_altered, [path for path in artifacts() if path not in NO_RECORD])
    for difference in not_locked(stages()):
        print(f"rmft: warning: {difference}: jobs run again, and `dvc repro` does not know", file=sys.stderr)
