"""`python -m bench`, from the checkout."""

from bench.command import bench

bench(prog_name="python -m bench")
