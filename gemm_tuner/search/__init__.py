"""Searches: which of a size's configurations to time next. They see what views say, and know no GPU and no compiler.

May import core, system, languages, gemm, space, consumers, source.
"""

from gemm_tuner.search.registry import SEARCHES as SEARCHES
from gemm_tuner.search.registry import about_asked as about_asked
from gemm_tuner.search.registry import about_rounds as about_rounds
from gemm_tuner.search.registry import make_search as make_search
from gemm_tuner.search.view import Asked as Asked
from gemm_tuner.search.view import Proposals as Proposals
from gemm_tuner.search.view import Search as Search
from gemm_tuner.search.view import SizeView as SizeView
