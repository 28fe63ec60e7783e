"""`python -m txlbench` is the command `txlbench`."""

from txlbench.cli.main import main

main()
