import type { Dashboard, FieldConfig, Panel, RowPanel as Row } from '@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen';
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as Lines, FieldConfig as LinesField } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type { Options as States, FieldConfig as StatesField } from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';

export type Plain<T> = unknown extends T ? T
  : T extends string ? `${T}` : T extends number ? number : T extends boolean | null | undefined ? T
  : T extends Array<infer E> ? Array<Plain<E>> : T extends object ? { [K in keyof T]?: Plain<T[K]> } : T;
type Target = { expr: string; legendFormat: string; refId: string; instant: boolean; range: boolean };
type Field<F> = { defaults: Plain<Omit<FieldConfig, 'custom'>> & { custom?: Plain<F> }; overrides: never[] };
type Typed<N, O, F> = Plain<Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'>>
  & { type: N; targets: Target[]; options: Plain<O>; fieldConfig: Field<F> };
type Header = Plain<Omit<Row, 'type'>> & { type: 'row' };
type Known = Header | Typed<'stat', Stat, {}> | Typed<'timeseries', Lines, LinesField>
  | Typed<'state-timeline', States, StatesField>;
type Annotations = { list: Array<Plain<NonNullable<NonNullable<Dashboard['annotations']>['list']>[number]> & { expr: string }> };
export type Checked = Plain<Omit<Dashboard, 'panels' | 'annotations'>> & { panels: Known[]; annotations: Annotations };
