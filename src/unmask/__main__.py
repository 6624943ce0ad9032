"""`python -m unmask` is `unmask`."""

import sys

from unmask.cli.main import main

sys.exit(main())
