//! Calls of users' functions: which rows reach one, and which row its failure is of.

use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use lmerge_temporal::expressions::{CallFailure, Expressions, Host, Lowered, Operation, RowError};
use lmerge_temporal::failure::Failure;
use lmerge_temporal::{Column, Kind};

/// Takes ten from ints, which fails for 13, and keeps what it was given.
#[derive(Debug, Default)]
struct Calling(Mutex<Vec<i64>>);

impl Host for Calling {
    fn failure(&self, _: &[ArrayRef], row: usize, failed: Option<Failure>) -> Failure {
        failed.unwrap_or_else(|| Failure::Module(format!("row {row} is evaluated again")))
    }

    fn call(&self, _: usize, arguments: &[ArrayRef], len: usize) -> Result<ArrayRef, CallFailure> {
        let given = arguments[0].as_primitive::<Int64Type>();
        assert_eq!(given.len(), len);
        self.0.lock().expect("one thread").extend(given.values());
        if let Some(row) = given.iter().position(|value| value == Some(13)) {
            let failure = Failure::Module("the call has failed".to_owned());
            return Err(CallFailure { row, failure });
        }
        Ok(Arc::new(given.unary::<_, Int64Type>(|value| value - 10)))
    }

    fn cased(&self, _: &[&str], _: bool) -> Result<Vec<String>, Failure> {
        unreachable!("nothing has cases")
    }
}

const CALL: Operation = Operation::Call {
    function: 0,
    skips_nulls: true,
};

/// Evaluate the last of nodes, written as operation, type and operands; return what the function was given, too.
fn evaluated(
    nodes: Vec<(Operation, Kind, Vec<usize>)>,
    values: &[Option<i64>],
) -> (Vec<i64>, Result<ArrayRef, RowError>) {
    let lowered = nodes.into_iter().map(|(operation, kind, operands)| Lowered {
        operation,
        column: Column {
            name: String::new(),
            kind,
            nullable: true,
        },
        operands,
    });
    let (lowered, host) = (lowered.collect::<Vec<_>>(), Arc::new(Calling::default()));
    let root = lowered.len() - 1;
    let expressions = Expressions::bind(lowered, vec![root], host.clone()).expect("nodes behind their operands");
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    let found = expressions
        .evaluate(&[column], values.len())
        .map(|mut found| found.remove(0));
    let given = host.0.lock().expect("one thread").clone();
    (given, found)
}

fn named(name: &str) -> Operation {
    Operation::named(name).expect("an operation")
}

fn int(value: i64) -> Operation {
    Operation::Constant(Arc::new(Int64Array::from(vec![value])))
}

fn ints(found: Result<ArrayRef, RowError>) -> Vec<Option<i64>> {
    found.expect("values").as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn a_function_gets_the_rows_that_need_it() {
    // case when a < 20 then f(a) else a
    let nodes = vec![
        (Operation::Load(0), Kind::Int, vec![]),
        (int(20), Kind::Int, vec![]),
        (named("less"), Kind::Bool, vec![0, 1]),
        (CALL, Kind::Int, vec![0]),
        (named("case"), Kind::Int, vec![2, 3, 0]),
    ];
    let (given, found) = evaluated(nodes, &[Some(30), Some(11), None, Some(12), Some(40)]);
    assert_eq!(given, [11, 12]);
    assert_eq!(ints(found), [Some(30), Some(1), None, Some(2), Some(40)]);
}

#[test]
fn a_call_in_two_branches_is_made_once_for_a_row() {
    // case when a < 20 then f(a) when a < 30 then f(a) else a
    let nodes = vec![
        (Operation::Load(0), Kind::Int, vec![]),
        (int(20), Kind::Int, vec![]),
        (named("less"), Kind::Bool, vec![0, 1]),
        (CALL, Kind::Int, vec![0]),
        (int(30), Kind::Int, vec![]),
        (named("less"), Kind::Bool, vec![0, 4]),
        (named("case"), Kind::Int, vec![2, 3, 5, 3, 0]),
    ];
    let (given, found) = evaluated(nodes, &[Some(25), Some(11), Some(40), Some(21)]);
    assert_eq!(given, [11, 25, 21]);
    assert_eq!(ints(found), [Some(15), Some(1), Some(40), Some(11)]);
}

#[test]
fn a_call_in_a_condition_and_its_branch_is_made_once_for_a_row() {
    // case when a < 20 then (case when f(a) < 2 then f(a) else a) else a
    let nodes = vec![
        (Operation::Load(0), Kind::Int, vec![]),
        (int(20), Kind::Int, vec![]),
        (named("less"), Kind::Bool, vec![0, 1]),
        (CALL, Kind::Int, vec![0]),
        (int(2), Kind::Int, vec![]),
        (named("less"), Kind::Bool, vec![3, 4]),
        (named("case"), Kind::Int, vec![5, 3, 0]),
        (named("case"), Kind::Int, vec![2, 6, 0]),
    ];
    let (given, found) = evaluated(nodes, &[Some(25), Some(11), Some(40), Some(14)]);
    assert_eq!(given, [11, 14]);
    assert_eq!(ints(found), [Some(25), Some(1), Some(40), Some(14)]);
}

#[test]
fn a_function_without_an_argument_that_is_there_is_not_called() {
    let nodes = vec![(Operation::Load(0), Kind::Int, vec![]), (CALL, Kind::Int, vec![0])];
    let (given, found) = evaluated(nodes, &[None, Some(10), None]);
    assert_eq!((given, ints(found)), (vec![10], vec![None, Some(0), None]));
}

#[test]
fn a_call_fails_at_its_row_of_the_batch() {
    let nodes = vec![(Operation::Load(0), Kind::Int, vec![]), (CALL, Kind::Int, vec![0])];
    let RowError { row, failure } = evaluated(nodes, &[None, Some(11), Some(13), Some(13)])
        .1
        .expect_err("it fails");
    assert_eq!(row, 2);
    assert!(matches!(failure, Failure::Module(text) if text == "the call has failed"));
}

#[test]
fn a_row_with_an_error_reaches_no_function() {
    // a * a + f(a)
    let nodes = vec![
        (Operation::Load(0), Kind::Int, vec![]),
        (named("multiply"), Kind::Int, vec![0, 0]),
        (CALL, Kind::Int, vec![0]),
        (named("add"), Kind::Int, vec![1, 2]),
    ];
    let (given, found) = evaluated(nodes, &[Some(1 << 40), Some(13)]);
    assert_eq!(given, [13]);
    let RowError { row, failure } = found.expect_err("the product is too large");
    assert_eq!(row, 0);
    assert!(matches!(failure, Failure::Module(text) if text == "row 0 is evaluated again"));
}

#[test]
fn a_call_of_constants_is_one_call() {
    let nodes = vec![(int(30), Kind::Int, vec![]), (CALL, Kind::Int, vec![0])];
    let (given, found) = evaluated(nodes, &[Some(1), Some(2), Some(3)]);
    assert_eq!((given, ints(found)), (vec![30], vec![Some(20); 3]));
}
