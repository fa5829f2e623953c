//! Lists that grow by a part of themselves. One that doubles holds up to twice what it needs.

/// The part of its length by which a full list grows.
const PART: usize = 16;

/// Make room in a list for one more element. A full list grows by a [`PART`] of its length, or by `least` if that is
/// more.
#[inline]
pub fn make_room<T>(list: &mut Vec<T>, least: usize) {
    if list.len() == list.capacity() {
        list.reserve_exact(least.max(list.len() / PART));
    }
}
