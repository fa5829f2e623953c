//! The thread that owns the merge: it takes what waits, and sends one output to all subscribers and one ack per input.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use lmerge_core::columns::View;
use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{Closing, LAZY};
use lmerge_core::sharded::Sharded;
use lmerge_core::wire::{Batch, Outgoing};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use crate::messages::{Ack, SnapshotBegin, SnapshotEnd, SubscribeResponse, bytes};

pub type Sender = mpsc::Sender<Result<Bytes, Status>>;

/// A turn takes at most so many elements; messages have at most these sizes.
const TURN_ELEMENTS: usize = 65_536;
const MESSAGE_ELEMENTS: usize = 65_536;
const MESSAGE_BYTES: usize = 3_000_000;
const KEYED: u32 = 16;

pub enum Work {
    /// Attach an input; answers with the stable point.
    Attach(usize, oneshot::Sender<i64>),
    Batch(usize, u64, Batch, watch::Sender<Ack>),
    Leave(usize),
    Subscribe(Sender),
}

/// Merge until no sender is left.
pub fn run(mut inbox: mpsc::Receiver<Work>) {
    let mut merge = Sharded::new(Kind::R3, LAZY, Closing(None), true, 1);
    let mut subscribers = Vec::new();
    let mut acks = HashMap::new();
    while let Some(first) = inbox.blocking_recv() {
        let mut elements = take(&mut merge, first, &mut subscribers, &mut acks);
        while elements < TURN_ELEMENTS {
            let Ok(more) = inbox.try_recv() else { break };
            elements += take(&mut merge, more, &mut subscribers, &mut acks);
        }
        subscribers.retain(|subscriber: &Sender| !subscriber.is_closed());
        emit(&mut merge, &subscribers);
        let stable_point = merge.announced();
        for (_, (ack, sequence)) in acks.drain() {
            ack.send_replace(Ack {
                sequence,
                stable_point,
                joined: true,
            });
        }
    }
}

/// Do one piece of work. Returns the number of its elements.
fn take(
    merge: &mut Sharded,
    work: Work,
    subscribers: &mut Vec<Sender>,
    acks: &mut HashMap<usize, (watch::Sender<Ack>, u64)>,
) -> usize {
    match work {
        Work::Attach(slot, accepted) => {
            merge.attach(slot, slot, Demands::from_bits(KEYED), None, false, true);
            accepted.send(merge.announced()).expect("a publisher");
        }
        Work::Batch(slot, sequence, batch, ack) => {
            let view = View::known(&batch.raw());
            merge.apply(slot, &view, 0).expect("a promise that is kept");
            acks.insert(slot, (ack, sequence));
            return view.len();
        }
        Work::Leave(slot) => {
            merge.remove(slot);
            merge.after_detach();
        }
        Work::Subscribe(subscriber) => {
            assert_eq!(merge.node_count(), 0, "a subscriber comes before the first event");
            let begin = Some(SnapshotBegin {
                stable_point: merge.announced(),
                epoch: 1,
            });
            let end = Some(SnapshotEnd {});
            for message in [
                SubscribeResponse { begin, end: None },
                SubscribeResponse { begin: None, end },
            ] {
                subscriber.try_send(Ok(bytes(&message))).expect("an empty queue");
            }
            subscribers.push(subscriber);
        }
    }
    0
}

fn emit(merge: &mut Sharded, subscribers: &[Sender]) {
    let taken = merge.take();
    let view = taken.batch.view();
    let mut start = 0;
    for stop in view.cuts(MESSAGE_ELEMENTS, MESSAGE_BYTES) {
        let parts = [view.slice(start, stop)];
        let outgoing = Outgoing::new(&parts, None);
        let mut message = BytesMut::with_capacity(outgoing.encoded_len());
        outgoing.write(&mut message);
        let message = message.freeze();
        for subscriber in subscribers {
            // A subscriber that does not read holds everything up, where lmerge would cut it off.
            let _ = subscriber.blocking_send(Ok(message.clone()));
        }
        start = stop;
    }
}
