"""Entry point of `python -m unmask`, which is the same as `unmask`."""

import sys

from unmask.cli.main import main

sys.exit(main())
