"""Helpers that need no device."""
