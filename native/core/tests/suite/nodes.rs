//! Nodes by number: the lowest first, so that the upper pages become empty and are freed.

use lmerge_core::arena::Arena;
use lmerge_core::nodes::{NIL, NONE, Node, Nodes};

const PAGE: usize = 256;

fn page_bytes() -> usize {
    PAGE * size_of::<Node>()
}

/// `count` nodes at 0, 1, ..., each with a place, as a store gives it.
fn full(count: usize) -> (Nodes, Vec<u32>) {
    let mut nodes = Nodes::default();
    let place = Arena::default().add(0, b"");
    let ids: Vec<u32> = (0..count).map(|at| nodes.add(at as i64)).collect();
    ids.iter().for_each(|&id| nodes.get_mut(id).place = place);
    (nodes, ids)
}

#[test]
fn a_node_does_not_grow_unnoticed() {
    assert_eq!((size_of::<Node>(), align_of::<Node>()), (48, 8));
}

#[test]
fn a_new_node_has_no_entries_and_is_due_at_its_start() {
    let mut nodes = Nodes::default();
    let id = nodes.add(7);
    let node = nodes.get(id);
    assert_eq!(
        (node.vs, node.due, node.out, node.has, node.spill()),
        (7, 7, NONE, 0, NIL)
    );
}

#[test]
fn numbers_are_the_lowest_that_are_not_in_use() {
    let (mut nodes, ids) = full(3 * PAGE);
    assert_eq!(ids, (0..3 * PAGE as u32).collect::<Vec<_>>());
    nodes.remove(700);
    nodes.remove(300);
    nodes.remove(5);
    assert_eq!([nodes.add(0), nodes.add(0), nodes.add(0)], [5, 300, 700]);
    assert_eq!(nodes.add(0), 3 * PAGE as u32);
}

#[test]
fn a_used_number_is_known_as_used() {
    let (mut nodes, ids) = full(3);
    nodes.remove(ids[1]);
    assert!(nodes.is_used(ids[0]) && !nodes.is_used(ids[1]) && nodes.is_used(ids[2]));
    assert!(!nodes.is_used(3) && !nodes.is_used(1 << 20), "never in use");
    assert_eq!((nodes.ids(), nodes.len()), (vec![0, 2], 2));
}

#[test]
fn a_number_that_is_used_again_has_nothing_of_its_last_life() {
    let (mut nodes, _) = full(1);
    let node = nodes.get_mut(0);
    (node.out, node.due) = (5, 9);
    node.set_spill(8);
    nodes.remove(0);
    assert_eq!(nodes.add(3), 0);
    let node = nodes.get(0);
    assert_eq!(
        (node.out, node.common, node.has, node.spill(), node.due),
        (NONE, NONE, 0, NIL, 3)
    );
}

#[test]
fn empty_pages_go_back_but_for_one() {
    let (mut nodes, ids) = full(40 * PAGE);
    assert!(nodes.held_bytes() >= 40 * page_bytes());
    ids.iter().for_each(|&id| nodes.remove(id));
    assert!(nodes.is_empty());
    assert!(
        nodes.held_bytes() <= page_bytes() + 4096,
        "{} bytes held for no node",
        nodes.held_bytes()
    );
    assert!(nodes.ids().is_empty());
}

#[test]
fn pages_that_went_back_are_made_again_from_the_lowest() {
    let (mut nodes, ids) = full(4 * PAGE);
    ids[PAGE..3 * PAGE].iter().for_each(|&id| nodes.remove(id));
    assert!(nodes.held_bytes() < 4 * page_bytes());
    let again: Vec<u32> = (0..2 * PAGE).map(|_| nodes.add(1)).collect();
    let expected: Vec<u32> = (PAGE as u32..3 * PAGE as u32).collect();
    let mut sorted = again.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert!(
        again[..PAGE].iter().all(|&id| (id as usize) < 2 * PAGE),
        "the lower page first"
    );
}

#[test]
fn coming_and_going_at_the_edge_of_a_page_makes_no_page_each_time() {
    let (mut nodes, _) = full(PAGE);
    let held = nodes.held_bytes();
    let edge = nodes.add(0);
    let with_it = nodes.held_bytes();
    for _ in 0..10 {
        nodes.remove(edge);
        assert_eq!(nodes.held_bytes(), with_it, "the one empty page is kept");
        assert_eq!(nodes.add(0), edge);
    }
    assert!(with_it > held);
}
