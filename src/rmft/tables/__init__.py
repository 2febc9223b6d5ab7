"""One module for each form of table. A table is tidy in its CSV and has the paper's layout in Markdown and LaTeX."""
