//! Sorted lists of ends, with each end as often as it occurs: the multisets of R4.

/// The ends that are not below `low`.
pub fn from(ends: &[i64], low: i64) -> &[i64] {
    &ends[ends.partition_point(|&ve| ve < low)..]
}

/// The ends that are not above `latest`.
pub fn by(ends: &[i64], latest: i64) -> &[i64] {
    &ends[..ends.partition_point(|&ve| ve <= latest)]
}

/// Multiset difference of sorted lists, ascending.
pub fn minus(left: &[i64], right: &[i64]) -> Vec<i64> {
    let mut difference = Vec::new();
    let mut right = right.iter().peekable();
    for &ve in left {
        while right.next_if(|&&other| other < ve).is_some() {}
        if right.next_if_eq(&&ve).is_none() {
            difference.push(ve);
        }
    }
    difference
}

/// Remove from `input_ends` ends below `right_from`, at most as many as it has more than `shown`, and first those that
/// `shown` does not have. See `_without_doubtful` in r4.py.
pub fn drop_doubtful(input_ends: &mut Vec<i64>, shown: &[i64], right_from: i64) {
    let excess = input_ends.len().saturating_sub(shown.len());
    if excess == 0 {
        return;
    }
    let surplus = minus(input_ends, shown);
    let common = minus(input_ends, &surplus);
    let doubtful = surplus.into_iter().chain(common);
    for ve in doubtful.filter(|&ve| ve < right_from).take(excess) {
        take(input_ends, ve);
    }
}

pub fn put(ends: &mut Vec<i64>, ve: i64) {
    let place = ends.partition_point(|&end| end <= ve);
    ends.insert(place, ve);
}

pub fn take(ends: &mut Vec<i64>, ve: i64) {
    if let Ok(place) = ends.binary_search(&ve) {
        ends.remove(place);
    }
}

/// Whether `ve` is more often in `left` than in `right`. O(log n).
pub fn exceeds(left: &[i64], right: &[i64], ve: i64) -> bool {
    count(left, ve) > count(right, ve)
}

fn count(ends: &[i64], ve: i64) -> usize {
    by(from(ends, ve), ve).len()
}
