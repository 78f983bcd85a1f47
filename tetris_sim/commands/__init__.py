"""The verbs of the command line, one file each: HELP, add_arguments(parser), run(args) -> exit
code.
"""
