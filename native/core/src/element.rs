//! Elements and times: the same numbers as on the wire and in `lmerge/core/elements.py`.

/// Minus infinity.
pub const NEG_INF: i64 = i64::MIN;
/// Plus infinity.
pub const INF: i64 = i64::MAX;

/// `insert(p, Vs, Ve)`.
pub const INSERT: u8 = 0;
/// `adjust(p, Vs, Vold, Ve)`.
pub const ADJUST: u8 = 1;
/// `stable(Vc)`.
pub const STABLE: u8 = 2;

/// One element, owned: for what must outlive its batch. For a stable, `vs` holds Vc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    pub kind: u8,
    pub vs: i64,
    pub ve: i64,
    pub vold: i64,
    pub payload: Vec<u8>,
}

/// An event of a temporal database, in the order in which lmerge lists events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    pub vs: i64,
    pub payload: Vec<u8>,
    pub ve: i64,
}
