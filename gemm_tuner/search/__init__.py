"""Searches: which configurations of a size to time next. They see sizes through views only, no GPU and no compiler."""

from gemm_tuner.search.registry import SEARCHES as SEARCHES
from gemm_tuner.search.registry import about_asked as about_asked
from gemm_tuner.search.registry import about_rounds as about_rounds
from gemm_tuner.search.registry import make_search as make_search
from gemm_tuner.search.view import Asked as Asked
from gemm_tuner.search.view import Proposals as Proposals
from gemm_tuner.search.view import Search as Search
from gemm_tuner.search.view import SizeView as SizeView
