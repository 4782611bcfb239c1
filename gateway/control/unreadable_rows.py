"""Rows of the control database that cannot be read, over HTTP: listed with the stored values, repaired, deleted."""

from typing import Annotated, Final

from fastapi import APIRouter, Path
from pydantic import Field, JsonValue

from backends.control import unreadable_rows
from contracts.control import (
    Guardrail,
    McpServer,
    McpToolRule,
    Model,
    OutagePlaybook,
    Pool,
    Price,
    Rollout,
    Route,
    StandardCost,
    Target,
)
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, Resource
from gateway.control.guardrails import GuardrailOut
from gateway.control.mcp import McpServerOut, ToolRuleOut
from gateway.control.models import ModelOut
from gateway.control.playbooks import PlaybookOut
from gateway.control.pools import PoolOut, TargetOut
from gateway.control.prices import PriceOut, StandardCostOut
from gateway.control.rollouts import RolloutOut
from gateway.control.routes import RouteOut

router = APIRouter(prefix="/v1/unreadable-rows", tags=["unreadable rows"])

TablePath = Annotated[str, Path(max_length=63, description="The table's name")]
RowPath = Annotated[str, Path(max_length=400, description="The row's id; of a target POOL/TARGET")]
# Tables with a column of JSON whose rows may be read and yet not be shown.
_SHAPES: Final[unreadable_rows.Shapes] = {
    Guardrail: GuardrailOut.model_validate,
    McpServer: McpServerOut.model_validate,
    McpToolRule: ToolRuleOut.model_validate,
    Model: ModelOut.model_validate,
    OutagePlaybook: PlaybookOut.model_validate,
    Pool: PoolOut.model_validate,
    Price: PriceOut.model_validate,
    Rollout: RolloutOut.of,
    Route: lambda row: RouteOut.of(row, ""),
    StandardCost: StandardCostOut.model_validate,
    Target: TargetOut.model_validate,
}


class UnreadableRowOut(Resource):
    """A row, the column at fault and why. `stored` is the stored value: for columns of JSON, times and amounts."""

    table: str
    id: str
    column: str
    reason: str
    stored: str


class RepairBody(Body):
    """Values by column: JSON, times as ISO 8601, amounts as text."""

    values: dict[str, JsonValue] = Field(min_length=1, max_length=50)


@router.get("", summary="List rows that cannot be read, of all tables")
def list_all(author: Admin, database: Database) -> Page[UnreadableRowOut]:
    """Looks through every table. Other lists name the rows of theirs under `unreadable`."""
    with database.session() as session:
        found = unreadable_rows.find_rows(session, _SHAPES)
    return Page(data=[UnreadableRowOut.model_validate(row) for row in found])


@router.patch("/{table}/{row:path}", summary="Repair a row that cannot be read")
def repair(
    table: TablePath, row: RowPath, body: RepairBody, author: Admin, database: Database
) -> Page[UnreadableRowOut]:
    """Refused if the row cannot be read afterwards, or can be read already. Returns the remaining unreadable rows."""
    with database.session() as session:
        unreadable_rows.repair_row(session, author, table, row, body.values, _SHAPES)
    return list_all(author, database)


@router.delete("/{table}/{row:path}", summary="Delete a row that cannot be read")
def delete(table: TablePath, row: RowPath, author: Admin, database: Database) -> Deleted:
    """Refused while another row refers to it, and for rows that can be read."""
    with database.session() as session:
        unreadable_rows.delete_row(session, author, table, row, _SHAPES)
    return Deleted(id=row)
