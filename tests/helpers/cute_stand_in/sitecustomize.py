"""Python runs it at its start where PYTHONPATH names this folder: it stands before the installed DSL, which a .pth file
puts before all of PYTHONPATH."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
