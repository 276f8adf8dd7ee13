"""The one error of the lab that a person reads."""

import click


class LabError(click.ClickException):
    """The lab cannot do what it was asked for; the message is a sentence that says what to do."""
