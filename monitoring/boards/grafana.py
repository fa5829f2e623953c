"""From a dashboard as data to the JSON that Grafana 11 loads, by Grafana's own builders."""

from __future__ import annotations

import json
from typing import Any, Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

from monitoring.alerting.alert import runbook_url
from monitoring.boards.panel import Board, BoardPanel, Mark, PanelView, Variable

TAG: Final = "lmerge"
HEIGHT: Final = 8
SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="$datasource")
_BUILDERS: Final = {
    PanelView.NUMBER: stat.Panel,
    PanelView.LINES: timeseries.Panel,
    PanelView.BANDS: timeseries.Panel,
    PanelView.STATES: statetimeline.Panel,
}


def dashboard_json(board: Board) -> str:
    """Return the text of a dashboard's file."""
    made = (
        dashboard.Dashboard(f"lmerge / {board.title}")
        .uid(f"{TAG}-{board.uid}")
        .description(board.question)
        .tags([TAG])
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("10s")
        .timezone("browser")
        .link(_to_others())
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in board.variables:
        made.with_variable(_variable(variable, board))
    for mark in board.marks:
        made.annotation(_annotation(mark))
    for row in board.rows:
        made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made.with_panel(_panel(panel))
    return finished(json.loads(json.dumps(made.build(), cls=JSONEncoder)))


def finished(document: Any) -> str:
    """Return the text of a dashboard with a number for each panel, by which links and Grafana find it.

    The builders write the settings of intervals into every variable; Grafana's types have them for intervals only.
    """
    for number, panel in enumerate(document["panels"], 1):
        panel["id"] = number
    for variable in document["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min"):
            variable.pop(name, None)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _to_others() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("lmerge").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.as_dropdown(True).include_vars(True).keep_time(True)


def _variable(variable: Variable, board: Board) -> dashboard.QueryVariable:
    """Return a choice among the values of a label. The choices before it narrow it."""
    before = board.variables[: board.variables.index(variable)]
    chosen = ", ".join(f'{other.name}=~"${other.name}"' for other in before)
    made = (
        dashboard.QueryVariable(variable.name)
        .label(variable.name.capitalize())
        .datasource(SOURCE)
        .query(f"label_values({variable.metric}{{{chosen}}}, {variable.name})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if variable.is_many:
        everything = models.VariableOption(selected=True, text="All", value="$__all")
        made.multi(True).include_all(True).all_value(".*").current(everything)
    return made


def _annotation(mark: Mark) -> dashboard.AnnotationQuery:
    made = dashboard.AnnotationQuery().name(mark.name).datasource(SOURCE).enable(True).hide(False)
    return made.icon_color(mark.colour).expr(mark.expression)


def _panel(panel: BoardPanel) -> Any:
    made: Any = _BUILDERS[panel.view]()
    made.title(panel.title).description(panel.question).datasource(SOURCE).unit(panel.unit)
    made.height(HEIGHT if panel.view is not PanelView.NUMBER else HEIGHT // 2).span(panel.width)
    for number, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id("ABCDEFGH"[number])
        made.with_target(target.instant() if panel.view is PanelView.NUMBER else target.range())
    steps = [models.Threshold(value=None, color=panel.below)]
    steps += [models.Threshold(value=value, color=colour) for value, colour in panel.steps]
    made.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    if panel.runbook:
        link = dashboard.DashboardLink("Runbook").type(models.DashboardLinkType.LINK)
        made.links([link.url(runbook_url(panel.runbook)).target_blank(True)])
    _STYLES[panel.view](made, panel)
    return made


def _number(made: Any, panel: BoardPanel) -> None:
    made.graph_mode(common.BigValueGraphMode.NONE).color_mode(common.BigValueColorMode.BACKGROUND)
    made.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))


def _lines(made: Any, panel: BoardPanel) -> None:
    legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    made.min(0).line_width(1).fill_opacity(0).show_points(common.VisibilityMode.NEVER)
    made.legend(legend.display_mode(common.LegendDisplayMode.LIST))
    if panel.steps:
        style = common_builders.GraphThresholdsStyleConfig()
        made.thresholds_style(style.mode(common.GraphThresholdsStyleMode.DASHED))


def _bands(made: Any, panel: BoardPanel) -> None:
    _lines(made, panel)
    made.max(1).fill_opacity(60).stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))


def _states(made: Any, panel: BoardPanel) -> None:
    made.merge_values(True).show_value(common.VisibilityMode.AUTO)
    options = {
        str(value): models.ValueMappingResult(text=text, color=colour, index=value)
        for value, (text, colour) in panel.names.items()
    }
    made.mappings([models.ValueMap(options=options)])


_STYLES: Final = {
    PanelView.NUMBER: _number,
    PanelView.LINES: _lines,
    PanelView.BANDS: _bands,
    PanelView.STATES: _states,
}
