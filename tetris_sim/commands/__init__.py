"""The verbs, one file each: HELP, add_arguments(parser), run(args) -> exit code."""
