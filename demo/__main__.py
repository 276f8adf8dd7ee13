"""`python -m demo`, from the checkout."""

from demo.command import demo

demo(prog_name="python -m demo")
