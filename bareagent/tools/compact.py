"""The compact tool: the model asks for full compaction; it only marks, the loop acts after the batch."""

from typing import Annotated

import msgspec
from msgspec import Meta

from bareagent.seams import Need, Output
from bareagent.tools.base import NOTHING, Params, ToolContext, text_for_model

MARKED = "Compressing..."


class CompactParams(Params):
    """What the summary should dwell on."""

    focus: Annotated[str, Meta(description="what the summary must keep in detail")] = ""


class Compact:
    """Marks that the history is to be compacted before the next model call."""

    name = "compact"
    description = text_for_model("compact")
    params: type[msgspec.Struct] = CompactParams
    is_read_only = False

    def needs(self, _params: CompactParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing."""
        return NOTHING

    async def run(self, params: CompactParams, ctx: ToolContext) -> Output:
        """Leave the mark."""
        ctx.marks.compact_focus = params.focus
        return Output(text=MARKED)
