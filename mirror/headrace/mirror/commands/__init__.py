"""The verbs of `headrace mirror`, as one types them: options, what is printed, exit codes."""
