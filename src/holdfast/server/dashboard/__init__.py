"""The page that shows what is going on: three files, no build step, no request to anywhere else."""
