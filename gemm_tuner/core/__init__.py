"""The records that travel between the stages, and errors that a person can mend.

Imports the standard library only.
"""
