"""The probe stream: publishers with known truth as real processes, and a reader that records what is delivered.

Called by the drill's runner. Imports ``lmerge.client`` to publish and to subscribe; the judge reads the recording.
"""
