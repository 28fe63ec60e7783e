"""A side's loop: workloads in, times out; imports nothing that a reference may lack."""

import json
import sys
import time


def answer(works):
    """Answers each line of standard input; `works` maps a work's name to a function of the rest.

    A function prepares and gives back what is timed, which gives a number to compare.
    """
    prepared = {}
    for line in sys.stdin:
        if line not in prepared:
            workload = json.loads(line)
            prepared[line] = works[workload.pop("work")](**workload)
        begin, busy = time.perf_counter(), time.process_time()
        value = prepared[line]()
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
        print(json.dumps({"seconds": seconds, "cpu": busy, "value": value}), flush=True)
