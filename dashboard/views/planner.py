"""The planner page: simulations with more traffic, other GPUs or other replicas; and recommended savings."""

import streamlit as st

from analytics.prices.card_list import CardList, card_list
from analytics.query_time import QueryTime
from analytics.recommendations.reading import recommended
from contracts.control import Role
from contracts.errors import InvalidRequest, TollkeeperError
from dashboard.forms import show_refusal
from dashboard.page import Page
from dashboard.panels import contained, note, panel
from dashboard.planner_run import PlannerRun, planner_runs
from dashboard.slow_answers import Pending
from dashboard.states import escaped
from dashboard.views.planner_form import asked_for, command_of
from dashboard.views.planner_result import show_result
from dashboard.views.recommendation_table import RECOMMENDED_DAYS, RECOMMENDED_SECONDS, show_recommendations
from dashboard.visit import Visit

_RUN_KEY = "planner_run"
_LOOK_SECONDS = 0.5
_ABOUT = "Simulate recorded traffic on hypothetical replicas, and list savings from the last week."


def draw(visit: Visit) -> None:
    """Draw the form, the simulation's progress or result, and recommendations."""
    if visit.viewer.tenant is None:
        left, right = st.columns([2, 3], gap="medium")
        with left:
            _ask(visit)
        with right:
            _show(visit)
            _recommendations(visit)
    else:
        note(
            "Simulations cover replicas, which serve all tenants. Only viewers of the whole installation can run them."
        )
        _recommendations(visit)


def _ask(visit: Visit) -> None:
    run: PlannerRun | None = st.session_state.get(_RUN_KEY)
    is_busy = run is not None and not run.is_over
    try:
        job = asked_for(visit)
    except InvalidRequest as error:
        show_refusal(error)
        return
    if st.button(
        "Run simulation",
        type="primary",
        icon=":material/play_arrow:",
        disabled=is_busy,
        width="stretch",
        key="plan_play",
    ):
        try:
            st.session_state[_RUN_KEY] = planner_runs().begin(job)
        except TollkeeperError as error:
            show_refusal(error)
            return
        st.rerun()


def _show(visit: Visit) -> None:
    run: PlannerRun | None = st.session_state.get(_RUN_KEY)
    if run is None:
        with panel("Outcome", help="Percentiles, how busy replicas would be, and what they would cost."):
            st.markdown(
                "Choose the workload and the changes, then run the simulation. The result shows "
                "latency, utilisation, cost and the number of replicas, compared with the current state."
            )
            note(
                "A simulation has the same result here and on the command line. Limits, "
                "queues and retries of the gateway are not simulated."
            )
    elif not run.is_over:
        st.fragment(_progress, run_every=_LOOK_SECONDS)(run)
    elif run.answer is None:
        with panel("Outcome"):
            said = run.refused or "the simulation returned no result"
            st.error(f"{escaped(said[:1].upper() + said[1:])}.", icon=":material/error:")
    else:
        show_result(visit, run.answer, run.seconds, command_of(run.job))


def _progress(run: PlannerRun) -> None:
    """Show a simulation's progress, twice a second; redraw the page when it has ended."""
    run.look()
    if run.is_over:
        st.rerun()
    with st.status(f"{(run.stages or ['starting'])[-1].capitalize()} … {run.seconds:.0f} s", expanded=True):
        for stage in run.stages[:-1]:
            st.markdown(f":material/check: {escaped(stage)}")
        if run.stages:
            st.markdown(f":material/hourglass_empty: {escaped(run.stages[-1])}")
        st.button("Cancel", on_click=run.cancel, key="plan_cancel", icon=":material/stop:")


def _begin(visit: Visit) -> None:
    """Start the query for recommendations, which takes seconds, once an hour."""
    visit.ahead_slow(recommended, *_question(visit), keep_seconds=RECOMMENDED_SECONDS)


def _question(visit: Visit) -> tuple[CardList, QueryTime, int, str | None]:
    """Return the query's arguments: the same as on the Costs page, so that both share one result."""
    cards = visit.read_control(card_list, visit.viewer.tenant)
    return cards, QueryTime(visit.now), RECOMMENDED_DAYS, visit.scope.tenant


def _recommendations(visit: Visit) -> None:
    with contained():
        found = visit.read_slow(recommended, *_question(visit), keep_seconds=RECOMMENDED_SECONDS)
        if isinstance(found, Pending):
            with panel("Recommendations"):
                note("The last week's records are being analysed.")
            return
        show_recommendations("Recommendations", found, visit.formats, key="planner_recommendations")


PLANNER = Page(
    "Planner",
    "planner",
    ":material/science:",
    draw,
    filters=("tenant",),
    is_live=False,
    roles=frozenset({Role.OWNER, Role.ADMIN, Role.FINANCE}),
    about=_ABOUT,
    ahead=_begin,
)
