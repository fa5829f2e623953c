"""lmerge compared with stream processors, on one job and one set of recorded inputs: ``python -m bench.peers``.

The job: three inputs carry the same insert-only events, each in its own order; emit every event once. This is the part
of a merge that the peers can do: remove duplicates by (Vs, payload) with state that a watermark clears. They do not
support adjusts, inputs that come and go, or an output that stays compatible with the inputs.

``recording`` writes the inputs, ``environments`` installs each peer into a virtual environment of its own,
``<peer>_job`` is the program that a user of that system would write, ``job`` holds the code that these programs share,
``check`` compares an output with the reference, ``plot`` draws the result. Programs of peers run without lmerge.
"""
