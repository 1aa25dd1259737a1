"""The records that travel between the stages, and the errors that a user can fix.

Imports the standard library only.
"""
