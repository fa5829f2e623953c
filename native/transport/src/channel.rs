//! A channel: calls to one server over one connection, which is made when a call needs it.
//!
//! A connection attempt ends within a time, and all calls that waited for it fail with its reason. It is the owner that
//! tries again.

use std::error::Error;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Status};
use tower_service::Service;

use crate::client_call::{ClientCall, Requests};
use crate::events::Events;
use crate::raw::Raw;
use crate::settings::{CONNECTION_WINDOW_BYTES, FRAME_BYTES, STREAM_WINDOW_BYTES};
use crate::watched::{FirstBytes, Watched};

/// How long a call whose connection fails waits for the reason.
const REASON: Duration = Duration::from_millis(200);
/// What a client is, for the logs of servers and proxies.
const USER_AGENT: &str = concat!("lmerge/", env!("CARGO_PKG_VERSION"));
/// How tonic begins its message about an answer above the limit, which it gives a status of a server's.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// How a channel connects.
#[derive(Clone, Debug)]
pub struct ChannelSettings {
    /// The server, with its port.
    pub authority: String,
    /// Certificates, and the name that the server's must hold; None: no encryption.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The time for one attempt, until the server has answered in HTTP/2.
    pub attempt: Duration,
    /// The largest message that is read.
    pub receive_bytes: usize,
    /// A ping is sent after so long without a frame while there are calls, and the connection is dropped if nothing
    /// answers it in time.
    pub keepalive: Duration,
    pub keepalive_timeout: Duration,
}

/// How a call begins.
#[derive(Debug)]
pub struct ClientOpening {
    pub path: PathAndQuery,
    pub metadata: MetadataMap,
    /// The time that the call may take.
    pub deadline: Option<Duration>,
}

/// The calls to one server.
#[derive(Debug)]
pub struct Channel {
    line: Arc<Line>,
    events: Arc<Events>,
    threads: Handle,
}

impl Channel {
    /// # Errors
    /// If the authority is none, or if the process may open no more files.
    pub fn new(settings: ChannelSettings, threads: Handle) -> std::io::Result<Channel> {
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let origin = Uri::builder()
            .scheme(scheme)
            .authority(settings.authority.as_str())
            .path_and_query("/")
            .build()
            .map_err(std::io::Error::other)?;
        Ok(Channel {
            line: Arc::new(Line {
                settings,
                origin,
                attempts: AtomicU64::new(0),
                problem: Mutex::default(),
                live: SyncMutex::default(),
            }),
            events: Arc::new(Events::new()?),
            threads,
        })
    }

    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Whether the server has answered on a connection that is open.
    pub fn is_ready(&self) -> bool {
        self.line.usable().is_some_and(|live| live.first.get().is_some())
    }

    /// Open a call.
    pub fn open(&self, opening: ClientOpening) -> Arc<ClientCall> {
        let call = ClientCall::open(&self.events);
        let (line, opened) = (self.line.clone(), call.clone());
        self.threads.spawn(async move {
            let deadline = opening.deadline;
            let late = async {
                match deadline {
                    Some(deadline) => sleep(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                status = line.exchange(&opened, opening) => opened.end(status),
                () = opened.cancelled() => {}
                () = late => opened.end(Status::deadline_exceeded("Deadline Exceeded")),
            }
        });
        call
    }

    /// Let the connection end when its calls have.
    pub fn close(&self) {
        self.line.keep(None);
    }
}

/// The connection of a channel, which is made again when it has ended.
#[derive(Debug)]
struct Line {
    settings: ChannelSettings,
    origin: Uri,
    /// Attempts that have failed.
    attempts: AtomicU64,
    /// Why the last attempt has failed. It is locked during an attempt.
    problem: Mutex<String>,
    /// The last connection that was made.
    live: SyncMutex<Option<Live>>,
}

/// A connection that was made.
#[derive(Clone, Debug)]
struct Live {
    sender: SendRequest<Body>,
    /// By when the server must have sent something.
    due: Instant,
    first: FirstBytes,
    /// Why it has ended.
    fate: watch::Receiver<Option<String>>,
}

impl Service<http::Request<Body>> for Live {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

impl Line {
    /// Run a call to its end.
    async fn exchange(&self, call: &Arc<ClientCall>, opening: ClientOpening) -> Status {
        let mut is_first = true;
        loop {
            let live = match self.connected().await {
                Ok(live) => live,
                Err(problem) => return Status::unavailable(problem),
            };
            let outcome = tokio::select! {
                outcome = self.run(live.clone(), call, &opening) => outcome,
                () = live.silent() => return Status::unavailable(format!(
                    "the server has accepted the connection and sent nothing within {:?}",
                    self.settings.attempt
                )),
            };
            match outcome {
                Ok(trailers) => return Status::with_metadata(Code::Ok, "", trailers),
                // The server takes no more calls on this connection, which hyper notices when it is given one.
                Err(problem) if is_first && was_not_sent(&problem) => is_first = false,
                Err(problem) => return live.explained(problem).await,
            }
        }
    }

    async fn run(&self, live: Live, call: &Arc<ClientCall>, opening: &ClientOpening) -> Result<MetadataMap, Status> {
        let mut request = Request::new(Requests(call.clone()));
        *request.metadata_mut() = opening.metadata.clone();
        request
            .metadata_mut()
            .insert("user-agent", MetadataValue::from_static(USER_AGENT));
        if let Some(deadline) = opening.deadline {
            request.set_timeout(deadline);
        }
        let mut grpc = Grpc::with_origin(live, self.origin.clone())
            .max_decoding_message_size(self.settings.receive_bytes)
            .accept_compressed(CompressionEncoding::Gzip);
        grpc.ready()
            .await
            .map_err(|problem| Status::from_error(problem.into()))?;
        let (headers, mut answers, _) = grpc.streaming(request, opening.path.clone(), Raw).await?.into_parts();
        call.answered(headers);
        while let Some(answer) = answers.message().await? {
            call.received(answer).await;
        }
        let mut trailers = answers.trailers().await?.unwrap_or_default();
        trailers.remove("grpc-status");
        trailers.remove("grpc-message");
        Ok(trailers)
    }

    /// The connection. Those who wait for one attempt share its outcome.
    async fn connected(&self) -> Result<Live, String> {
        let before = self.attempts.load(Ordering::Acquire);
        let mut problem = self.problem.lock().await;
        if let Some(live) = self.usable() {
            return Ok(live);
        }
        if self.attempts.load(Ordering::Acquire) != before {
            return Err(problem.clone());
        }
        self.keep(None);
        match timeout(self.settings.attempt, self.connect()).await {
            Ok(Ok(live)) => {
                self.keep(Some(live.clone()));
                Ok(live)
            }
            failed => {
                *problem = failed.map_or_else(
                    |_| format!("no connection within {:?}", self.settings.attempt),
                    |connected| connected.err().unwrap_or_default(),
                );
                self.attempts.fetch_add(1, Ordering::Release);
                Err(problem.clone())
            }
        }
    }

    /// The connection, if a call may be sent on it.
    fn usable(&self) -> Option<Live> {
        let live = self.live.lock().expect("no panic while it is held");
        live.as_ref().filter(|live| live.may_be_used()).cloned()
    }

    fn keep(&self, live: Option<Live>) {
        *self.live.lock().expect("no panic while it is held") = live;
    }

    async fn connect(&self) -> Result<Live, String> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        // It shares the time out among the addresses of a name, so that one behind which nothing is keeps none from
        // the others.
        connector.set_connect_timeout(Some(self.settings.attempt));
        poll_fn(|context| connector.poll_ready(context))
            .await
            .map_err(|problem| shown(&problem))?;
        let socket = connector
            .call(self.origin.clone())
            .await
            .map_err(|problem| shown(&problem))?;
        let socket = socket.into_inner();
        let Some((configuration, name)) = &self.settings.tls else {
            return self.begin(socket).await;
        };
        let handshake = TlsConnector::from(configuration.clone()).connect(name.clone(), socket);
        self.begin(handshake.await.map_err(|problem| format!("TLS: {}", shown(&problem)))?)
            .await
    }

    /// Begin HTTP/2 on a socket. The server has the time of an attempt to answer.
    async fn begin<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, socket: S) -> Result<Live, String> {
        let (socket, first) = Watched::new(socket);
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(self.settings.keepalive)
            .keep_alive_timeout(self.settings.keepalive_timeout)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(|problem| shown(&problem))?;
        let (ended, fate) = watch::channel(None);
        let answered = first.clone();
        tokio::spawn(async move {
            let outcome = connection.await;
            ended.send_replace(Some(why_ended(outcome.err().as_ref(), &answered)));
        });
        Ok(Live {
            sender,
            due: Instant::now() + self.settings.attempt,
            first,
            fate,
        })
    }
}

impl Live {
    fn may_be_used(&self) -> bool {
        !self.sender.is_closed() && (self.first.get().is_some() || Instant::now() < self.due)
    }

    /// Wait until the server has sent nothing for too long. Its pings would show that later.
    async fn silent(&self) {
        sleep_until(self.due).await;
        if self.first.get().is_some() {
            std::future::pending::<()>().await;
        }
    }

    /// The status of a call that has failed: of the server, or with the reason why the connection has ended.
    async fn explained(mut self, problem: Status) -> Status {
        if problem.code() == Code::OutOfRange && problem.message().starts_with(TOO_LARGE) {
            return Status::resource_exhausted(problem.message());
        }
        let Some(own) = problem.source().map(shown) else {
            return problem;
        };
        match timeout(REASON, self.fate.wait_for(Option::is_some)).await {
            Ok(Ok(why)) => Status::unavailable(why.clone().unwrap_or_default()),
            _ => Status::unavailable(own),
        }
    }
}

/// Why a connection has ended, from the error, if any, and from what the server had sent first.
fn why_ended(problem: Option<&hyper::Error>, first: &OnceLock<Vec<u8>>) -> String {
    match first.get() {
        Some(first) if first.starts_with(b"HTTP/1") => return "an http1.x server has answered".to_owned(),
        Some(first) if first.starts_with(b"\x15\x03") => return "the server has answered in TLS".to_owned(),
        _ => {}
    }
    let when = if first.get().is_none() {
        " before the server had sent anything"
    } else {
        ""
    };
    let why = problem.map_or_else(String::new, |problem| format!(": {}", shown(problem)));
    format!("the connection has ended{when}{why}")
}

/// Whether a call has failed before anything of it was sent.
fn was_not_sent(problem: &Status) -> bool {
    let mut source = problem.source();
    while let Some(problem) = source {
        if problem
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled)
        {
            return true;
        }
        source = problem.source();
    }
    false
}

/// An error with its sources.
fn shown(problem: &dyn Error) -> String {
    let mut text = problem.to_string();
    let mut source = problem.source();
    while let Some(problem) = source {
        let next = problem.to_string();
        if !text.contains(&next) {
            // Writing to a String does not fail.
            let _ = write!(text, ": {next}");
        }
        source = problem.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(first: &[u8]) -> String {
        let noted = OnceLock::new();
        if !first.is_empty() {
            noted.set(first.to_vec()).expect("once");
        }
        why_ended(None, &noted)
    }

    #[test]
    fn what_a_peer_has_sent_first_shows_why_a_connection_has_ended() {
        assert_eq!(ended(b"HTTP/1.1 400 Bad"), "an http1.x server has answered");
        assert_eq!(ended(b"\x15\x03\x01"), "the server has answered in TLS");
        assert_eq!(
            ended(b""),
            "the connection has ended before the server had sent anything"
        );
        assert_eq!(ended(b"\0\0\x18\x04"), "the connection has ended");
    }

    #[test]
    fn an_error_is_shown_with_its_sources_once() {
        #[derive(Debug)]
        struct Failed(&'static str, std::io::Error);

        impl std::fmt::Display for Failed {
            fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                text.write_str(self.0)
            }
        }

        impl Error for Failed {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.1)
            }
        }

        for text in ["no connection", "no connection: refused"] {
            let failed = Failed(text, std::io::Error::other("refused"));
            assert_eq!(shown(&failed), "no connection: refused");
        }
    }

    #[tokio::test]
    async fn calls_that_wait_for_one_attempt_share_its_reason() {
        let settings = ChannelSettings {
            authority: "127.0.0.1:1".to_owned(),
            tls: None,
            attempt: Duration::from_secs(5),
            receive_bytes: 1,
            keepalive: Duration::from_secs(5),
            keepalive_timeout: Duration::from_secs(5),
        };
        let channel = Channel::new(settings, Handle::current()).expect("files");
        let before = channel.line.problem.lock().await;
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let line = channel.line.clone();
                    async move { line.connected().await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(before);
        for attempt in waiting {
            let reason = attempt.await.expect("no panic").expect_err("nothing listens");
            assert!(reason.contains("refused"), "{reason}");
        }
        assert_eq!(channel.line.attempts.load(Ordering::Acquire), 1);
        assert!(!channel.is_ready());
    }
}
