"""The stages of the workflow, one module each: read files, call the core, write files.

`run` of a module does one job: its first argument is the job's record, the others are files. What a module imports,
with all that these import, is the code of its jobs, see `lineage.code`; so no stage imports another one.
"""
