//! State as plain values: what `state` and `restore` of an operator in Python give and take.

use crate::failure::Failure;

/// A plain value. Rows are lists of their values; a decimal is `{"decimal": TEXT}`.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits, in decimal digits.
    Big(String),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Plain>),
    /// In the order in which Python's dict has its keys.
    Map(Vec<(String, Plain)>),
}

impl Plain {
    pub fn map<const N: usize>(entries: [(&str, Plain); N]) -> Plain {
        Plain::Map(entries.map(|(name, value)| (name.to_owned(), value)).into())
    }

    pub fn ints(values: impl IntoIterator<Item = i64>) -> Plain {
        Plain::List(values.into_iter().map(Plain::Int).collect())
    }

    /// Append the entries of another map.
    pub fn and<const N: usize>(self, entries: [(&str, Plain); N]) -> Plain {
        let Plain::Map(mut all) = self else {
            unreachable!("only a map has entries")
        };
        all.extend(entries.map(|(name, value)| (name.to_owned(), value)));
        Plain::Map(all)
    }

    /// An entry of a map. Fails without one: the state is of another operator.
    pub fn get(&self, name: &str) -> Result<&Plain, Failure> {
        let Plain::Map(entries) = self else {
            return Err(self.unexpected("a map"));
        };
        let found = entries.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value)
            .ok_or_else(|| Failure::Usage(format!("a state has no {name:?}")))
    }

    pub fn int(&self) -> Result<i64, Failure> {
        match self {
            Plain::Int(value) => Ok(*value),
            Plain::Bool(value) => Ok(i64::from(*value)),
            other => Err(other.unexpected("an integer")),
        }
    }

    pub fn list(&self) -> Result<&[Plain], Failure> {
        match self {
            Plain::List(values) => Ok(values),
            other => Err(other.unexpected("a list")),
        }
    }

    pub fn text(&self) -> Result<&str, Failure> {
        match self {
            Plain::Text(value) => Ok(value),
            other => Err(other.unexpected("text")),
        }
    }

    /// The entries of a list that has exactly `N`.
    pub fn tuple<const N: usize>(&self) -> Result<&[Plain; N], Failure> {
        let values = self.list()?;
        values
            .try_into()
            .map_err(|_| self.unexpected(&format!("a list of {N}")))
    }

    /// The failure for a value of another type.
    pub fn unexpected(&self, expected: &str) -> Failure {
        Failure::Usage(format!("a state has {self:.100?} where it should have {expected}"))
    }
}
