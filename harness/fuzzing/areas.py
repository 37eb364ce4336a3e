"""The table of all areas."""

from collections.abc import Sequence
from typing import Final

from seatrial.harness.fuzzing.api_areas import API_AREAS
from seatrial.harness.fuzzing.file_areas import FILE_AREAS
from seatrial.harness.fuzzing.http_area import HTTP_AREA
from seatrial.harness.fuzzing.running import Area
from seatrial.harness.fuzzing.scheduler_area import SCHEDULER_AREAS

AREAS: Final[Sequence[Area]] = (*API_AREAS, HTTP_AREA, *FILE_AREAS, *SCHEDULER_AREAS)
