//! An HTTP request as a call. tonic does the framing; messages stay bytes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, StreamingService};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::call::{Call, Opening};
use crate::connection::Connection;
use crate::raw::Raw;

/// Serve one request of a connection.
pub async fn serve(connection: Arc<Connection>, request: http::Request<Body>) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let limit = connection.settings().receive_bytes;
    Grpc::new(Raw)
        .accept_compressed(CompressionEncoding::Gzip)
        .apply_max_message_size_config(Some(limit), None)
        .streaming(Exchange { connection, path }, request)
        .await
}

struct Exchange {
    connection: Arc<Connection>,
    path: String,
}

impl StreamingService<Bytes> for Exchange {
    type Response = Bytes;
    type ResponseStream = Answers;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answers>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let (metadata, _, messages) = request.into_parts();
        let opening = Opening {
            path: std::mem::take(&mut self.path),
            peer: self.connection.peer.clone(),
            metadata,
            names: self.connection.names.clone(),
        };
        let call = Call::open(opening, self.connection.events());
        let answers = Answers {
            call: call.clone(),
            has_ended: false,
            _place: self.connection.enter(),
        };
        tokio::spawn(receive(call.clone(), messages));
        Box::pin(async move {
            let metadata = poll_fn(|context| call.poll_headers(context)).await;
            let mut answers = answers;
            answers.has_ended = metadata.is_err();
            let mut response = Response::new(answers);
            *response.metadata_mut() = metadata?;
            Ok(response)
        })
    }
}

/// Read the messages of a call until it ends on either side.
async fn receive(call: Arc<Call>, mut messages: Streaming<Bytes>) {
    loop {
        let received = tokio::select! {
            received = messages.message() => received,
            () = call.finished() => return,
        };
        match received {
            Ok(Some(message)) => {
                if !call.received(message).await {
                    return;
                }
            }
            Ok(None) => return call.ended(),
            Err(problem) => {
                if problem.code() == Code::OutOfRange {
                    call.finish(Status::resource_exhausted(problem.message()));
                } else if problem.code() != Code::Cancelled && problem.code() != Code::Unknown {
                    call.finish(problem);
                }
                return call.gone();
            }
        }
    }
}

/// What a call answers. Dropped before its end, the peer has gone.
struct Answers {
    call: Arc<Call>,
    has_ended: bool,
    _place: crate::connection::Place,
}

impl Stream for Answers {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.call.poll_answer(context).map(|answer| {
            self.has_ended = answer.is_err();
            Some(answer)
        })
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if !self.has_ended {
            self.call.gone();
        }
    }
}
