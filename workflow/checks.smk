"""Checks before a run: no artifact was edited by hand, and jobs can write; then the fork server starts.

A run that fails or is stopped says so in its last line.
"""


onstart:
    to_do = [job for job in workflow.dag.needrun_jobs() if job.shellcmd]
    outputs = [path for job in to_do for path in job.output]
    or_stop(refuse_other_targets, outputs, set(artifacts()))
    or_stop(refuse_read_only, [*outputs, *(path for job in to_do for path in job.log)])
    if not workflow.local_exec:
        or_stop(refuse_own_server, [job.params.settings for job in to_do])
    or_stop(refuse_left_alone, left_alone_that_is_used())
    or_stop(write_job_list, to_do, up_to_date())
    if workflow.local_exec and not IN_CONDA:  # the server's forks have the libraries of this environment
        at_endpoint = any(job.resources.get("own_server") for job in to_do)
        forkserver.start([stage_of(job) for job in to_do], ENVIRONMENT, at_endpoint=at_endpoint)
    if workflow.local_exec:
        # With a limit to jobs a second, 100 unless said otherwise, Snakemake 9 looks for jobs not only when one has ended
        # but again a second after each time that it looked, so ever more often (snakemake/snakemake#3744).
        workflow.scheduler.job_rate_limiter = None
        let_wait(workflow.scheduler, workflow.scheduler.global_resources.get("own_server", 0))
    let_sigterm_in(workflow.scheduler)


onerror:
    say_last(workflow.scheduler, len(workflow.dag))


def up_to_date():
    """Return the jobs that this run would take as they are."""
    return [job for job in workflow.dag.jobs if job.shellcmd and not workflow.dag.needrun(job)]


def left_alone_that_is_used():
    """Return the problems of artifacts on request that this run would take as they are."""
    return [LEFT_ALONE[path] for job in up_to_date() for path in job.output if path in LEFT_ALONE]


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
LEFT_ALONE = {}
if workflow.is_main_process and not AUDIT and not OTHER_RUN:
    LEFT_ALONE = or_stop(refuse_altered, artifacts(), targets.requested(PARAMS))
    if LEFT_ALONE:
        left = f"{len(LEFT_ALONE)} results on request are not what their records describe, as after going to another commit"
        print(f"rmft: warning: {left}, and are left alone, such as {min(LEFT_ALONE)}", file=sys.stderr)
        logger.addFilter(WithNothingToDo(lambda: or_stop(refuse_left_alone, left_alone_that_is_used())))
    for difference in not_locked(stages()):
        print(f"rmft: warning: {difference}: jobs run again, and `dvc repro` does not know", file=sys.stderr)
