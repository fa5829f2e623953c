//! Windows for Python: what `lmerge/temporal/native/windows.py` describes.

use std::str::FromStr;
use std::sync::Arc;

use lmerge_temporal::RowSchema;
use lmerge_temporal::aggregates::{Aggregates, Call, Function, Module, RankBy, TopK};
use lmerge_temporal::rows::RowForm;
use lmerge_temporal::windows::{Form, Grid, WindowKind, WindowOperator, WindowSpec};
use num_bigint::BigInt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::expressions::Expressions;

/// The operator of a description. `input`, `output`: the rows.
pub fn window_operator(
    name: &str,
    input: &Arc<RowSchema>,
    output: &Arc<RowSchema>,
    description: &Bound<'_, PyDict>,
) -> PyResult<WindowOperator> {
    let from = Fields(description);
    let expressions = from.get("expressions")?.cast::<Expressions>()?.get().0.clone();
    let keys: usize = from.extract("keys")?;
    let columns: Vec<_> = expressions.columns().cloned().collect();
    let (key_columns, arguments) = columns.split_at(keys.min(columns.len()));
    let rows = Arc::new(RowForm::new(input));
    let module = from.get("module")?;
    let module = Fields(module.cast::<PyDict>()?);
    let module = match module.extract::<String>("kind")?.as_str() {
        "aggregates" => {
            let calls = module.get("calls")?.try_iter()?.zip(&output.columns[keys..]);
            let calls = calls.map(|(call, result)| {
                let (function, part, argument, before, after): (String, (String, String), _, _, _) = call?.extract()?;
                let function = function_of(&function, &part)?;
                Ok(Call {
                    function,
                    argument,
                    result: result.clone(),
                    overflow: (before, after),
                })
            });
            Module::Aggregates(Aggregates::new(calls.collect::<PyResult<_>>()?, arguments, &rows))
        }
        _ => {
            let descending: Vec<bool> = module.extract("descending")?;
            let by = arguments.iter().cloned().zip(descending);
            let by: Vec<_> = by
                .map(|(argument, descending)| RankBy { argument, descending })
                .collect();
            let (k, has_rank, kept) = (
                module.extract("k")?,
                module.extract("has_rank")?,
                module.extract("columns")?,
            );
            Module::TopK(TopK::new(k, &by, has_rank, kept, rows))
        }
    };
    let form: String = from.extract("form")?;
    Ok(WindowOperator::new(WindowSpec {
        name: name.to_owned(),
        input: input.clone(),
        output: output.clone(),
        keys: key_columns.to_vec(),
        expressions,
        module,
        kind: kind_of(&from)?,
        form: Form::of(&form).ok_or_else(|| unknown(&form))?,
        is_point: from.extract("is_point")?,
        windows_max: from.extract("windows_max")?,
    }))
}

fn kind_of(from: &Fields<'_, '_>) -> PyResult<WindowKind> {
    let window = from.get("window")?;
    let window = Fields(window.cast::<PyDict>()?);
    Ok(match window.extract::<String>("kind")?.as_str() {
        "hopping" => WindowKind::Hopping(Grid {
            size: window.extract("size")?,
            hop: window.extract("hop")?,
            offset: window.extract("offset")?,
            since: window.extract("since")?,
            shown: window.extract("shown")?,
        }),
        "snapshot" => WindowKind::Snapshots,
        "count" => WindowKind::Count {
            count: window.extract("count")?,
            by_ends: window.extract("by_ends")?,
        },
        "sessions" => WindowKind::Sessions {
            gap: window.extract("gap")?,
        },
        other => return Err(unknown(other)),
    })
}

/// `part`: of a percentile, as a fraction.
fn function_of(name: &str, part: &(String, String)) -> PyResult<Function> {
    let number = |text: &str| BigInt::from_str(text).map_err(|_| unknown(text));
    Ok(match name {
        "count" => Function::Count,
        "distinct_count" => Function::DistinctCount,
        "mode" => Function::Mode,
        "sum" => Function::Sum,
        "avg" => Function::Avg,
        "var_pop" => Function::Spread {
            of_sample: false,
            is_root: false,
        },
        "var_samp" => Function::Spread {
            of_sample: true,
            is_root: false,
        },
        "stddev_pop" => Function::Spread {
            of_sample: false,
            is_root: true,
        },
        "stddev_samp" => Function::Spread {
            of_sample: true,
            is_root: true,
        },
        "min" => Function::Min,
        "max" => Function::Max,
        "first" => Function::First,
        "last" => Function::Last,
        "collect" => Function::Collect,
        "percentile_disc" => Function::PercentileDisc(number(&part.0)?, number(&part.1)?),
        "percentile_cont" => Function::PercentileCont(number(&part.0)?, number(&part.1)?),
        other => return Err(unknown(other)),
    })
}

struct Fields<'a, 'py>(&'a Bound<'py, PyDict>);

impl<'py> Fields<'_, 'py> {
    fn get(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let missing = || PyValueError::new_err(format!("a description of windows has no {name:?}"));
        self.0.get_item(name)?.ok_or_else(missing)
    }

    fn extract<T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(&self, name: &str) -> PyResult<T> {
        self.get(name)?.extract()
    }
}

fn unknown(what: &str) -> PyErr {
    PyValueError::new_err(format!("there is no native {what:?}"))
}
