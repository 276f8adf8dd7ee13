"""The verbs of `headrace audit`, as one types them: options, what is printed, exit codes."""
