//! Inputs by slot, and the elements that they have delivered.

use lmerge_core::element::NEG_INF;
use lmerge_core::input::{Demands, ElementsAtVs, Input, Inputs};

fn input() -> Input {
    Input::new(Demands::default(), None, false, true)
}

#[test]
fn elements_are_kept_in_order_and_counted() {
    let mut elements = ElementsAtVs::default();
    assert!(elements.is_empty());
    for (payload, ve) in [(&b"ab"[..], 1), (b"", 2), (b"c", 3), (b"ab", 1), (b"ab", 2)] {
        elements.push(payload, ve);
    }
    assert_eq!(
        (elements.get(0), elements.get(1), elements.get(2)),
        ((&b"ab"[..], 1), (&b""[..], 2), (&b"c"[..], 3))
    );
    assert_eq!(
        (
            elements.count(b"ab", 1),
            elements.count(b"ab", 3),
            elements.iter().count()
        ),
        (2, 0, 5)
    );
    elements.clear();
    assert_eq!((elements.len(), elements.iter().next()), (0, None));
}

#[test]
fn demands_are_read_from_their_bits() {
    assert_eq!(Demands::from_bits(0), Demands::default());
    let demands = Demands::from_bits(1 + 2 + 16);
    assert!(demands.insert_only && demands.is_ordered() && demands.is_keyed() && !demands.strict);
    let strict = Demands::from_bits(4);
    assert!(strict.is_ordered() && strict.is_keyed(), "strict implies both");
}

#[test]
fn the_floor_of_an_input_follows_from_what_it_promised() {
    let mut input = input();
    assert!(!input.is_below_floor(NEG_INF), "no element was delivered yet");
    (input.stable, input.last_vs) = (5, Some(9));
    assert!(
        input.is_below_floor(4) && !input.is_below_floor(5),
        "its stable point, not below its own boundary"
    );
    input.demands = Demands::from_bits(2);
    assert!(input.is_below_floor(8) && !input.is_below_floor(9));
    input.demands = Demands::from_bits(4);
    assert!(input.is_below_floor(9) && !input.is_below_floor(10));
}

#[test]
fn slots_are_listed_in_order_of_attachment() {
    let mut inputs = Inputs::default();
    for slot in [5, 0, 70] {
        inputs.add(slot, slot, input());
    }
    inputs.add(2, 2, Input::new(Demands::default(), None, true, true));
    inputs.add(1, 1, Input::new(Demands::default(), Some(9), false, false));
    assert_eq!((inputs.order(), inputs.width()), (&[5, 0, 70, 2, 1][..], 71));
    let counting: Vec<usize> = inputs.counting().map(|(slot, _)| slot).collect();
    assert_eq!(
        counting,
        [5, 0, 70],
        "neither one that observes nor one that is joining"
    );
    inputs.remove(70);
    assert!(!inputs.is_attached(70) && inputs.is_attached(5) && !inputs.is_attached(1000));
    assert_eq!(inputs.width(), 6);
}

#[test]
#[should_panic(expected = "two inputs in one slot")]
fn a_slot_has_one_input() {
    let mut inputs = Inputs::default();
    inputs.add(3, 3, input());
    inputs.add(3, 3, input());
}
