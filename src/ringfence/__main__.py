"""`python -m ringfence`."""

from __future__ import annotations

from ringfence.cli.main import main

raise SystemExit(main())
