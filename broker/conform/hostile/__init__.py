"""Hosts under test, and the hostile extensions that are played to them."""
