"""Old home of the sections."""

from txlbench.config.corpus import *
from txlbench.config.evaluate import *
from txlbench.config.model import *
from txlbench.config.run import *
from txlbench.config.section import *
from txlbench.config.train import *
