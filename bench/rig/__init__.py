"""What the benchmarks of real processes share: a stream that everybody can compute, replicas, servers, links, a judge.

    stream     the reference, and how each replica says it
    replica    a process that says it at a rate
    links      a process of TCP links that can be cut and stalled
    judge      the process that reads the merged stream, believes nobody, and notes when everything came
    fleet      starts, breaks and restarts all of them
    stalls     from arrivals and faults to distributions
"""
