"""Experiments that compare credit schemes, and the statistics that judge them."""
