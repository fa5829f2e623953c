"""The rig that the benchmarks with real processes share: a computable stream, replicas, servers, links and a judge.

stream     the reference stream, and its form in each replica
replica    a process that publishes it at a rate
links      a process of TCP links that can be cut and stalled
judge      the process that reads the merged stream, checks every element and notes when it arrived
fleet      starts, breaks and restarts all of them
stalls     computes distributions of stalls from arrivals and faults
"""
