//! One call to a server: its owner writes requests and reads answers, and never waits inside.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_stream::Stream;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::call::{Read, Write};
use crate::events::{Event, Events};
use crate::queues::{Incoming, Outgoing};

/// What the status of a call that its owner has cancelled contains.
const CANCELLED: &str = "Locally cancelled by application!";

#[derive(Debug, Default)]
struct State {
    requests: Outgoing,
    has_ended_requests: bool,
    answers: Incoming,
    headers: Option<MetadataMap>,
    status: Option<Status>,
}

/// A call, for the owner and for the channel.
#[derive(Debug)]
pub struct ClientCall {
    pub id: u64,
    events: Arc<Events>,
    state: Mutex<State>,
    /// An answer was read.
    taken: Notify,
    /// The call has its status.
    over: Notify,
}

// What the owner does.
impl ClientCall {
    /// The next answer. `End`: the call has its status.
    pub fn read(&self) -> Read {
        let mut state = self.state();
        if let Some(answer) = state.answers.take() {
            self.taken.notify_one();
            return Read::Message(answer);
        }
        if state.status.is_some() {
            return Read::End;
        }
        state.answers.waits = true;
        Read::Wait
    }

    /// Add a request.
    pub fn write(&self, request: Bytes) -> Write {
        let mut state = self.state();
        if state.status.is_some() || state.has_ended_requests {
            return Write::Gone;
        }
        state.requests.push(request);
        room(&mut state)
    }

    /// Whether another request can be written.
    pub fn room(&self) -> Write {
        room(&mut self.state())
    }

    /// There will be no more requests.
    pub fn end_requests(&self) {
        let mut state = self.state();
        state.has_ended_requests = true;
        state.requests.wake();
    }

    /// The first metadata of the server; None: an event will come.
    pub fn headers(&self) -> Option<MetadataMap> {
        let state = self.state();
        let ended = || state.status.as_ref().map(|_| MetadataMap::new());
        state.headers.clone().or_else(ended)
    }

    /// The end of the call, once it has come; an event comes then.
    pub fn status(&self) -> Option<Status> {
        self.state().status.clone()
    }

    /// End the call now. What was not read is dropped.
    pub fn cancel(&self) {
        let mut state = self.state();
        if state.status.is_none() {
            state.answers = Incoming::default();
            self.end_with(&mut state, Status::cancelled(CANCELLED));
        }
    }
}

// What the channel does.
impl ClientCall {
    pub(crate) fn open(events: &Arc<Events>) -> Arc<ClientCall> {
        Arc::new(ClientCall {
            id: events.next_number(),
            events: events.clone(),
            state: Mutex::default(),
            taken: Notify::new(),
            over: Notify::new(),
        })
    }

    /// Note that the server has answered.
    pub(crate) fn answered(&self, headers: MetadataMap) {
        self.state().headers = Some(headers);
        self.events.push(Event::Changed(self.id));
    }

    /// Add an answer, and wait until another one may be read.
    pub(crate) async fn received(&self, answer: Bytes) {
        {
            let mut state = self.state();
            if state.status.is_some() {
                return;
            }
            state.answers.push(answer);
            if std::mem::take(&mut state.answers.waits) {
                self.events.push(Event::Changed(self.id));
            }
        }
        while self.state().answers.is_full() {
            self.taken.notified().await;
        }
    }

    /// Wait until the owner has cancelled the call.
    pub(crate) async fn cancelled(&self) {
        while self.state().status.is_none() {
            self.over.notified().await;
        }
    }

    /// Give the call its status. Only the first one counts.
    pub(crate) fn end(&self, status: Status) {
        let mut state = self.state();
        if state.status.is_none() {
            self.end_with(&mut state, status);
        }
    }

    fn end_with(&self, state: &mut State, status: Status) {
        state.status = Some(status);
        state.requests.wake();
        self.over.notify_one();
        self.events.push(Event::Changed(self.id));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }
}

fn room(state: &mut State) -> Write {
    if state.status.is_some() {
        Write::Gone
    } else if state.requests.is_full() {
        Write::Wait
    } else {
        Write::Done
    }
}

/// The requests of a call, as tonic takes them.
pub(crate) struct Requests(pub Arc<ClientCall>);

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.state();
        if let Some((request, is_due)) = state.requests.take() {
            if is_due {
                self.0.events.push(Event::Changed(self.0.id));
            }
            return Poll::Ready(Some(request));
        }
        if state.has_ended_requests || state.status.is_some() {
            return Poll::Ready(None);
        }
        state.requests.wait(context);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::settings::BYTES_AHEAD;

    fn opened() -> (Arc<Events>, Arc<ClientCall>) {
        let events = Arc::new(Events::new().expect("files"));
        let call = ClientCall::open(&events);
        (events, call)
    }

    fn request(call: &Arc<ClientCall>) -> Poll<Option<Bytes>> {
        Pin::new(&mut Requests(call.clone())).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn woken(events: &Events, call: &ClientCall) -> bool {
        matches!(events.take()[..], [Event::Changed(id)] if id == call.id)
    }

    #[test]
    fn a_writer_waits_while_the_socket_takes_nothing() {
        let (events, call) = opened();
        let large = Bytes::from(vec![0; 2 * BYTES_AHEAD]);
        assert_eq!(call.write(large.clone()), Write::Done, "one request may be of any size");
        assert_eq!(call.write(large), Write::Wait);
        assert!(request(&call).is_ready());
        assert!(woken(&events, &call));
        assert_eq!(call.room(), Write::Done);
    }

    #[test]
    fn the_requests_end_behind_those_that_were_written() {
        let (_events, call) = opened();
        assert!(request(&call).is_pending());
        call.write(Bytes::from_static(b"a"));
        call.end_requests();
        assert_eq!(call.write(Bytes::from_static(b"b")), Write::Gone);
        assert!(matches!(request(&call), Poll::Ready(Some(request)) if request == "a"));
        assert!(matches!(request(&call), Poll::Ready(None)));
    }

    #[tokio::test]
    async fn the_status_comes_behind_the_answers_and_only_the_first_counts() {
        let (events, call) = opened();
        assert!(matches!(call.read(), Read::Wait));
        call.received(Bytes::from_static(b"a")).await;
        assert!(woken(&events, &call));
        call.end(Status::aborted("first"));
        call.end(Status::internal("second"));
        assert!(woken(&events, &call));
        assert!(matches!(call.read(), Read::Message(answer) if answer == "a"));
        assert!(matches!(call.read(), Read::End));
        assert_eq!(call.status().expect("it has ended").message(), "first");
        assert_eq!(call.write(Bytes::new()), Write::Gone);
    }

    #[tokio::test]
    async fn no_more_than_two_answers_are_read_ahead() {
        let (_events, call) = opened();
        call.received(Bytes::from_static(b"a")).await;
        let ahead = tokio::spawn({
            let call = call.clone();
            async move { call.received(Bytes::from_static(b"b")).await }
        });
        tokio::task::yield_now().await;
        assert!(!ahead.is_finished(), "two wait");
        assert!(matches!(call.read(), Read::Message(_)));
        ahead.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_cancelled_call_drops_what_was_not_read_and_takes_no_more() {
        let (_events, call) = opened();
        call.received(Bytes::from_static(b"a")).await;
        call.cancel();
        call.cancelled().await;
        assert!(matches!(call.read(), Read::End));
        call.received(Bytes::from_static(b"b")).await;
        assert!(matches!(call.read(), Read::End));
        assert!(matches!(request(&call), Poll::Ready(None)));
        assert_eq!(call.headers().map(|headers| headers.len()), Some(0));
    }
}
