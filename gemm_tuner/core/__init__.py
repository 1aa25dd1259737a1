"""Records that the stages pass to each other, protocols of the extension points, and the errors that a user can fix.

Imports the standard library only.
"""
