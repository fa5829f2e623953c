//! Nodes by number, in pages that are made and freed as a whole.

use lmerge_core::arena::{Arena, Place};
use lmerge_core::element::INF;
use lmerge_core::nodes::{NIL, NONE, Node, Nodes, PAGE};

const SLICE: u32 = 7;

fn page_bytes() -> usize {
    PAGE * size_of::<Node>()
}

/// A place, which every node in use has.
pub fn some_place() -> Place {
    let mut arena = Arena::default();
    let mut list = arena.list();
    arena.add(&mut list, b"")
}

/// A node at `vs` with a place, as a store gives it.
fn node(vs: i64) -> Node {
    let mut node = Node::new(vs, vs);
    node.place = some_place();
    node
}

/// `pages` full pages, and the numbers of their nodes.
fn full(pages: usize) -> (Nodes, Vec<u32>) {
    let mut nodes = Nodes::default();
    let mut ids = Vec::new();
    for _ in 0..pages {
        let page = nodes.new_page(SLICE);
        ids.extend((0..PAGE).map(|within| nodes.add(page, within, node(within as i64))));
    }
    (nodes, ids)
}

#[test]
fn a_node_does_not_grow_unnoticed() {
    assert_eq!((size_of::<Node>(), align_of::<Node>()), (48, 8));
}

#[test]
fn a_new_node_has_no_entries() {
    let node = Node::new(7, 9);
    assert_eq!(
        (node.vs, node.due, node.out, node.has, node.spill()),
        (7, 9, NONE, 0, NIL)
    );
}

#[test]
fn a_node_is_in_use_until_it_is_removed() {
    let (mut nodes, ids) = full(2);
    assert_eq!(ids, (0..2 * PAGE as u32).collect::<Vec<_>>());
    assert!(ids.iter().all(|&id| nodes.is_used(id) && nodes.slice(id) == SLICE));
    assert_eq!(nodes.remove(ids[1]), (some_place(), SLICE));
    assert!(nodes.is_used(ids[0]) && !nodes.is_used(ids[1]) && nodes.is_used(ids[2]));
    assert_eq!(nodes.due(ids[1]), INF, "it is never due");
    assert!(
        !nodes.is_used(2 * PAGE as u32) && !nodes.is_used(1 << 20),
        "never in use"
    );
    assert_eq!((nodes.ids().len(), nodes.len()), (2 * PAGE - 1, 2 * PAGE - 1));
    assert!(!nodes.ids().contains(&ids[1]));
}

#[test]
fn a_page_that_is_used_again_has_nothing_of_its_last_life() {
    let (mut nodes, ids) = full(1);
    for &id in &ids {
        let node = nodes.get_mut(id);
        (node.out, node.due) = (5, 9);
        node.set_spill(8);
        nodes.remove(id);
    }
    nodes.free_page(0);
    assert_eq!(nodes.due(3), INF, "no node of an absent page is due");
    assert_eq!(nodes.new_page(8), 0, "its number comes first");
    let id = nodes.add(0, 0, node(3));
    assert_eq!((nodes.ids(), nodes.slice(id)), (vec![id], 8));
    let node = nodes.get(id);
    assert_eq!((node.out, node.common, node.has, node.due), (NONE, NONE, 0, 3));
}

#[test]
fn pages_without_nodes_go_back_but_for_few() {
    let (mut nodes, ids) = full(40);
    assert!(nodes.held_bytes() >= 40 * page_bytes());
    ids.iter().for_each(|&id| {
        nodes.remove(id);
    });
    (0..40).for_each(|page| nodes.free_page(page));
    assert!(nodes.is_empty() && nodes.ids().is_empty());
    assert!(
        nodes.held_bytes() <= 10 * page_bytes(),
        "{} bytes held for no node",
        nodes.held_bytes()
    );
}

#[test]
fn coming_and_going_makes_no_page_each_time() {
    let (mut nodes, _) = full(1);
    let page = nodes.new_page(SLICE);
    let held = nodes.held_bytes();
    for _ in 0..10 {
        nodes.free_page(page);
        assert!(nodes.held_bytes() <= held + 64, "the memory of the page waits");
        assert_eq!(nodes.new_page(SLICE), page);
    }
}

#[test]
fn the_list_of_pages_grows_by_a_part_of_it() {
    for pages in [70, 260, 1_030] {
        let (nodes, _) = full(pages);
        let beside = nodes.held_bytes() - pages * page_bytes();
        assert!(
            beside <= (pages + 16 + pages / 8) * 24,
            "{beside} bytes for the list of {pages}"
        );
    }
}
