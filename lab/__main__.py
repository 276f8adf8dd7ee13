"""`python -m lab`, from the checkout."""

from lab.command import lab

lab(prog_name="python -m lab")
