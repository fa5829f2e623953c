//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::body::Body;

use crate::events::Events;
use crate::exchange;
use crate::settings::{CONNECTION_WINDOW_BYTES, FRAME_BYTES, STREAM_WINDOW_BYTES, Settings};
use crate::tls::PeerNames;
use crate::watched::Watched;

/// How far a server has come in closing its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closing {
    Open,
    /// No new calls.
    Draining,
    /// No calls at all.
    Closed,
}

/// What all connections of a port share.
#[derive(Debug)]
pub struct Shared {
    pub settings: Settings,
    pub events: Arc<Events>,
    pub closing: watch::Sender<Closing>,
}

/// One connection. `peer`: its address, in gRPC's notation.
#[derive(Debug)]
pub struct Connection {
    pub peer: String,
    pub names: Option<Arc<PeerNames>>,
    shared: Arc<Shared>,
    use_: Mutex<Use>,
}

/// Calls that run, and when the last one ended.
#[derive(Debug)]
struct Use {
    calls: usize,
    since: Instant,
}

/// The place of a call in the count of its connection.
pub struct Place(Arc<Connection>);

impl Drop for Place {
    fn drop(&mut self) {
        let mut now = self.0.use_.lock().expect("no panic while it is held");
        now.calls -= 1;
        now.since = Instant::now();
    }
}

impl Connection {
    pub fn new(peer: String, names: Option<Arc<PeerNames>>, shared: Arc<Shared>) -> Arc<Connection> {
        Arc::new(Connection {
            peer,
            names,
            shared,
            use_: Mutex::new(Use {
                calls: 0,
                since: Instant::now(),
            }),
        })
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub fn events(&self) -> &Arc<Events> {
        &self.shared.events
    }

    pub fn enter(self: &Arc<Self>) -> Place {
        self.use_.lock().expect("no panic while it is held").calls += 1;
        Place(self.clone())
    }

    /// When the connection will have been idle for too long; None while calls run.
    fn idle_until(&self) -> Option<Instant> {
        let now = self.use_.lock().expect("no panic while it is held");
        (now.calls == 0).then(|| now.since + self.settings().idle)
    }

    /// Serve all calls of the connection until either side closes it.
    pub async fn run<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self: Arc<Self>, socket: S) {
        let settings = self.settings().clone();
        let (socket, seen) = Watched::new(socket);
        let calls = self.clone();
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let calls = calls.clone();
            async move { Ok::<_, Infallible>(exchange::serve(calls, request.map(Body::new)).await) }
        });
        let mut connection = pin!(
            Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(settings.keepalive)
                .keep_alive_timeout(settings.keepalive_timeout)
                .max_concurrent_streams(settings.calls_per_connection)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_frame_size(FRAME_BYTES)
                .serve_connection(TokioIo::new(socket), service)
        );
        let mut closing = self.shared.closing.subscribe();
        let mut is_ending = false;
        let mut look_at = Instant::now() + settings.handshake.min(settings.idle);
        loop {
            tokio::select! {
                _ = connection.as_mut() => return,
                changed = closing.changed() => {
                    if changed.is_err() || *closing.borrow_and_update() == Closing::Closed {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    is_ending = true;
                }
                () = sleep_until(look_at) => {
                    if seen.get().is_none() {
                        return;
                    }
                    let now = Instant::now();
                    let until = self.idle_until();
                    if !is_ending && until.is_some_and(|until| until <= now) {
                        connection.as_mut().graceful_shutdown();
                        is_ending = true;
                    }
                    look_at = until.filter(|&until| until > now).unwrap_or(now + settings.idle);
                }
            }
        }
    }
}
