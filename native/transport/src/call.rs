//! One call: the owner reads its messages, writes answers and finishes it, and never waits inside.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::Notify;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::events::{Event, Events};
use crate::queues::{Incoming, Outgoing};
use crate::tls::PeerNames;

/// The answer to a read.
#[derive(Debug)]
pub enum Read {
    Message(Bytes),
    /// The peer sends no more.
    End,
    /// Nothing is there yet: an event will come.
    Wait,
    /// The peer has gone, or the call has ended.
    Gone,
}

/// The answer to a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Write {
    Done,
    /// It is taken, and an event will come when there is room for another one.
    Wait,
    Gone,
}

/// How a call was opened.
#[derive(Debug)]
pub struct Opening {
    pub path: String,
    /// The peer's address, in gRPC's notation.
    pub peer: String,
    pub metadata: MetadataMap,
    pub names: Option<Arc<PeerNames>>,
}

#[derive(Debug, Default)]
struct State {
    messages: Incoming,
    has_ended: bool,
    answers: Outgoing,
    headers: Option<MetadataMap>,
    status: Option<Status>,
    is_gone: bool,
}

/// A call, for the owner and for the connection.
#[derive(Debug)]
pub struct Call {
    pub id: u64,
    pub opening: Opening,
    events: Arc<Events>,
    state: Mutex<State>,
    changed: Notify,
}

// What the owner does.
impl Call {
    /// The next message.
    pub fn read(&self) -> Read {
        let mut state = self.state();
        if let Some(message) = state.messages.take() {
            self.changed.notify_one();
            return Read::Message(message);
        }
        if state.has_ended {
            return Read::End;
        }
        if state.is_gone || state.status.is_some() {
            return Read::Gone;
        }
        state.messages.waits = true;
        Read::Wait
    }

    /// Add an answer.
    pub fn write(&self, answer: Bytes) -> Write {
        let mut state = self.state();
        if state.is_gone || state.status.is_some() {
            return Write::Gone;
        }
        state.answers.push(answer);
        if state.answers.is_full() {
            return Write::Wait;
        }
        Write::Done
    }

    /// Send the first metadata now.
    pub fn start(&self, metadata: MetadataMap) {
        let mut state = self.state();
        state.headers = Some(metadata);
        state.answers.wake();
    }

    /// End the call behind the answers that were written. Only the first end counts.
    pub fn finish(&self, status: Status) {
        let mut state = self.state();
        if state.status.is_none() {
            state.status = Some(status);
            state.answers.wake();
            self.changed.notify_one();
        }
    }

    /// Whether the owner has to wait before it writes.
    pub fn is_full(&self) -> bool {
        self.state().answers.is_full()
    }

    /// Whether the peer has gone.
    pub fn is_gone(&self) -> bool {
        self.state().is_gone
    }
}

// What the connection does.
impl Call {
    pub(crate) fn open(opening: Opening, events: &Arc<Events>) -> Arc<Call> {
        let call = Arc::new(Call {
            id: events.next_number(),
            opening,
            events: events.clone(),
            state: Mutex::default(),
            changed: Notify::new(),
        });
        events.push(Event::Opened(call.clone()));
        call
    }

    /// Add a message of the peer, and wait until another one may be read. False: no more are needed.
    pub(crate) async fn received(&self, message: Bytes) -> bool {
        {
            let mut state = self.state();
            state.messages.push(message);
            self.wake_reader(&mut state);
        }
        loop {
            {
                let state = self.state();
                if state.status.is_some() || state.is_gone {
                    return false;
                }
                if !state.messages.is_full() {
                    return true;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Wait until the owner has finished the call.
    pub(crate) async fn finished(&self) {
        while self.state().status.is_none() {
            self.changed.notified().await;
        }
    }

    /// Note that the peer sends no more.
    pub(crate) fn ended(&self) {
        let mut state = self.state();
        state.has_ended = true;
        self.wake_reader(&mut state);
    }

    /// Note that the peer has gone.
    pub(crate) fn gone(&self) {
        let mut state = self.state();
        if !state.is_gone {
            state.is_gone = true;
            self.events.push(Event::Changed(self.id));
        }
    }

    /// The first metadata, when they are due: with the first answer, or when the owner sends them. A call that fails
    /// before has only a status.
    pub(crate) fn poll_headers(&self, context: &Context<'_>) -> Poll<Result<MetadataMap, Status>> {
        let mut state = self.state();
        if let Some(headers) = state.headers.take() {
            return Poll::Ready(Ok(headers));
        }
        if !state.answers.is_empty() {
            return Poll::Ready(Ok(MetadataMap::new()));
        }
        match &state.status {
            Some(status) if status.code() == tonic::Code::Ok => Poll::Ready(Ok(MetadataMap::new())),
            Some(status) => Poll::Ready(Err(status.clone())),
            None => {
                state.answers.wait(context);
                Poll::Pending
            }
        }
    }

    /// The next answer, then the status.
    pub(crate) fn poll_answer(&self, context: &Context<'_>) -> Poll<Result<Bytes, Status>> {
        let mut state = self.state();
        if let Some((answer, is_due)) = state.answers.take() {
            if is_due {
                self.events.push(Event::Changed(self.id));
            }
            return Poll::Ready(Ok(answer));
        }
        if let Some(status) = &state.status {
            return Poll::Ready(Err(status.clone()));
        }
        state.answers.wait(context);
        Poll::Pending
    }

    fn wake_reader(&self, state: &mut State) {
        if std::mem::take(&mut state.messages.waits) {
            self.events.push(Event::Changed(self.id));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::settings::BYTES_AHEAD;

    fn opened() -> (Arc<Events>, Arc<Call>) {
        let events = Arc::new(Events::new().expect("files"));
        let opening = Opening {
            path: "/a/b".to_owned(),
            peer: "ipv4:10.0.0.1:1".to_owned(),
            metadata: MetadataMap::new(),
            names: None,
        };
        let call = Call::open(opening, &events);
        assert!(matches!(events.take()[..], [Event::Opened(_)]));
        (events, call)
    }

    fn answer(call: &Call) -> Poll<Result<Bytes, Status>> {
        call.poll_answer(&Context::from_waker(Waker::noop()))
    }

    fn woken(events: &Events, call: &Call) -> bool {
        matches!(events.take()[..], [Event::Changed(id)] if id == call.id)
    }

    #[tokio::test]
    async fn a_reader_is_woken_once_and_only_if_it_waits() {
        let (events, call) = opened();
        assert!(matches!(call.read(), Read::Wait));
        assert!(call.received(Bytes::from_static(b"a")).await);
        assert!(woken(&events, &call));
        assert!(matches!(call.read(), Read::Message(message) if message == "a"));
        assert!(call.received(Bytes::from_static(b"b")).await);
        assert!(events.take().is_empty(), "nobody waits");
        call.ended();
        assert!(matches!(call.read(), Read::Message(message) if message == "b"));
        assert!(matches!(call.read(), Read::End));
    }

    #[tokio::test]
    async fn no_more_than_two_messages_are_read_ahead() {
        let (_events, call) = opened();
        assert!(call.received(Bytes::from_static(b"a")).await);
        let ahead = tokio::spawn({
            let call = call.clone();
            async move { call.received(Bytes::from_static(b"b")).await }
        });
        tokio::task::yield_now().await;
        assert!(!ahead.is_finished(), "two wait");
        assert!(matches!(call.read(), Read::Message(_)));
        assert!(ahead.await.expect("no panic"));
    }

    #[test]
    fn a_writer_waits_while_the_socket_takes_nothing() {
        let (events, call) = opened();
        let large = Bytes::from(vec![0; 2 * BYTES_AHEAD]);
        assert_eq!(call.write(large.clone()), Write::Done, "one answer may be of any size");
        assert_eq!(call.write(large), Write::Wait);
        assert!(call.is_full());
        assert!(answer(&call).is_ready());
        assert!(woken(&events, &call));
        assert!(!call.is_full());
    }

    #[test]
    fn the_status_comes_behind_the_answers_and_only_the_first_counts() {
        let (_events, call) = opened();
        assert_eq!(call.write(Bytes::from_static(b"a")), Write::Done);
        call.finish(Status::aborted("first"));
        call.finish(Status::internal("second"));
        assert_eq!(call.write(Bytes::from_static(b"b")), Write::Gone);
        assert!(matches!(call.read(), Read::Gone));
        assert!(matches!(answer(&call), Poll::Ready(Ok(answer)) if answer == "a"));
        assert!(matches!(answer(&call), Poll::Ready(Err(status)) if status.message() == "first"));
    }

    #[tokio::test]
    async fn a_peer_that_has_gone_ends_reads_and_writes() {
        let (events, call) = opened();
        call.gone();
        call.gone();
        assert!(woken(&events, &call));
        assert!(matches!(call.read(), Read::Gone));
        assert_eq!(call.write(Bytes::new()), Write::Gone);
        assert!(!call.received(Bytes::new()).await);
    }
}
