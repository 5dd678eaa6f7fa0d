"""Timings and counts taken in a few early steps, and collectives timed alone."""
