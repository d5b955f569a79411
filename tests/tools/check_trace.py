#!/usr/bin/python3
"""Holds files of `zeroplan fit --trace` to the Trace Event Format (its document by Google, and what Perfetto reads):

    check_trace.py FILE...

What a phase needs is there, times are numbers and rise where they must, nothing overlaps on a track, every arrow begins and ends
at an event, and counters are numbers. Prints what is wrong; exit code 1 where something is.
"""

import collections
import json
import sys

NEEDED = {"X": {"name", "cat", "pid", "tid", "ts", "dur"}, "M": {"name", "pid", "args"}, "C": {"name", "pid", "ts", "args"},
          "s": {"name", "cat", "id", "pid", "tid", "ts"}, "f": {"name", "cat", "id", "pid", "tid", "ts"},
          "i": {"name", "pid", "tid", "ts", "s"}}
NANOSECOND = 2e-3  # times are rounded to one, in microseconds


def problems_of(trace):
    tracks, arrows = collections.defaultdict(list), collections.defaultdict(dict)
    if not isinstance(trace.get("traceEvents"), list):
        yield "no list of traceEvents"
        return
    for number, event in enumerate(trace["traceEvents"]):
        kind = event.get("ph")
        if kind not in NEEDED:
            yield f"event {number}: phase {kind!r} is not known"
            continue
        missing = NEEDED[kind] - event.keys()
        if missing:
            yield f"event {number} ({kind}): {', '.join(sorted(missing))} missing"
            continue
        if kind != "M" and not isinstance(event["ts"], (int, float)):
            yield f"event {number}: ts is no number"
        if kind == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
        elif kind in "sf":
            if kind in arrows[event["id"]]:
                yield f"arrow {event['id']}: two of phase {kind}"
            arrows[event["id"]][kind] = event
        elif kind == "C" and not all(isinstance(value, (int, float)) for value in event["args"].values()):
            yield f"event {number}: a counter that is no number"
    for track, spans in tracks.items():
        spans.sort()
        for (_, end, name), (begin, _, later) in zip(spans, spans[1:]):
            if begin < end - NANOSECOND:
                yield f"track {track}: {later} begins at {begin}, before the end of {name} at {end}"
    for number, ends in arrows.items():
        if ends.keys() != {"s", "f"}:
            yield f"arrow {number}: only {', '.join(ends)}"
            continue
        if ends["f"]["ts"] < ends["s"]["ts"]:
            yield f"arrow {number} ends before it begins"
        for kind, end in ends.items():
            spans = tracks[end["pid"], end["tid"]]
            if not any(begin - NANOSECOND <= end["ts"] <= finish + NANOSECOND for begin, finish, _ in spans):
                yield f"arrow {number}: no event where its {kind} is"


def main():
    failed = False
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            trace = json.load(file)
        for problem in problems_of(trace):
            print(f"{name}: {problem}")
            failed = True
        kinds = collections.Counter(event.get("ph") for event in trace["traceEvents"])
        print(f"{name}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
