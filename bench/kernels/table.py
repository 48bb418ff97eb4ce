"""Prints one table from the JSON outputs of the kernel benchmarks named on the command line."""

import json
import sys


def rate_of(run):
    """(value, unit) of what the benchmark counted: bytes or floating-point operations."""
    if "GB_s" in run:
        return run["GB_s"], "GB/s"
    if "GFLOP_s" in run:
        return run["GFLOP_s"], "GFLOP/s"
    return None, ""


def row_of(run):
    rate, unit = rate_of(run)
    limit = f"{run['limit']:.0f}" if "limit" in run else ""
    percent = f"{run['pct']:.0f} %" if "pct" in run else ""
    name = run["run_name"].removesuffix("/real_time").removesuffix("/manual_time")
    rate_text = f"{rate:.1f} {unit}" if rate is not None else ""
    time = f"{run['real_time']:.2f} {run['time_unit']}"
    return f"| {name} | {time} | {rate_text} | {limit} | {percent} |"


def main(paths):
    print("| benchmark | median time | rate | limit | of limit |\n|---|---|---|---|---|")
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if not text:
            continue  # the filter matched nothing in this program
        for run in json.loads(text)["benchmarks"]:
            if run.get("aggregate_name") == "median":
                print(row_of(run))


if __name__ == "__main__":
    main(sys.argv[1:])
