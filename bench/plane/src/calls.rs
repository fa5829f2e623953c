//! The calls: Publish and Subscribe, and an empty answer to DescribeMerge. Messages stay bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use lmerge_core::columns::{Limits, View};
use lmerge_core::wire::read_publish;
use prost::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

use crate::merge::{Sender, Work};
use crate::messages::{self, Accepted, Ack, PublishRequest, PublishResponse, bytes};

const MESSAGE_BYTES_MAX: usize = 64 << 20;
const LIMITS: Limits = Limits {
    elements: 65_536,
    payload_bytes: 1 << 20,
};
const SUBSCRIBER_QUEUE: usize = 256;
const ACK_INTERVAL: Duration = Duration::from_millis(10);
fn buffers() -> BufferSettings {
    BufferSettings::new(64 * 1024, 128 * 1024)
}

/// A codec that leaves messages as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let all = from.remaining();
        Ok(Some(from.copy_to_bytes(all)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// What all calls share.
pub struct Doors {
    inbox: mpsc::Sender<Work>,
    slots: AtomicUsize,
}

impl Doors {
    pub fn new(inbox: mpsc::Sender<Work>) -> Doors {
        Doors {
            inbox,
            slots: AtomicUsize::new(0),
        }
    }

    async fn queue(&self, work: Work) {
        assert!(self.inbox.send(work).await.is_ok(), "the merge has ended");
    }
}

type Out = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;
type Answer<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

fn out(receiver: mpsc::Receiver<Result<Bytes, Status>>) -> Response<Out> {
    Response::new(Box::pin(ReceiverStream::new(receiver)))
}

struct Publish(Arc<Doors>);

impl StreamingService<Bytes> for Publish {
    type Response = Bytes;
    type ResponseStream = Out;
    type Future = Answer<Out>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Answer<Out> {
        let doors = self.0.clone();
        Box::pin(async move {
            let (answers, receiver) = mpsc::channel(8);
            tokio::spawn(publish(doors, request.into_inner(), answers));
            Ok(out(receiver))
        })
    }
}

/// Serve one publisher: attach it, and queue its batches until it leaves.
async fn publish(doors: Arc<Doors>, mut requests: Streaming<Bytes>, answers: Sender) {
    let Some(Ok(first)) = requests.next().await else { return };
    let attach = PublishRequest::decode(first).ok().and_then(|request| request.attach);
    let incarnation = attach.expect("an attach comes first").incarnation.max(1);
    let slot = doors.slots.fetch_add(1, Ordering::Relaxed);
    let (accepted, stable_point) = oneshot::channel();
    doors.queue(Work::Attach(slot, accepted)).await;
    let accepted = Accepted {
        incarnation,
        algorithm: "r3".to_string(),
        stable_point: stable_point.await.expect("the merge goes on"),
        joined: true,
        limits: Some(messages::Limits {
            message_bytes: 4 << 20,
            payload_bytes: LIMITS.payload_bytes as u64,
            batch_elements: LIMITS.elements as u64,
            subscriber_queue_bytes: 64 << 20,
            live_bytes: 1 << 34,
        }),
    };
    let message = PublishResponse {
        accepted: Some(accepted),
        ack: None,
    };
    let _ = answers.send(Ok(bytes(&message))).await;
    let (ack, acked) = watch::channel(Ack::default());
    tokio::spawn(acknowledge(acked, answers));
    while let Some(Ok(message)) = requests.next().await {
        let Some(sequenced) = read_publish(message) else { break };
        let batch = sequenced.batch.expect("a batch");
        View::decode(&batch.raw(), LIMITS).expect("columns that are right");
        doors
            .queue(Work::Batch(slot, sequenced.sequence, batch, ack.clone()))
            .await;
    }
    doors.queue(Work::Leave(slot)).await;
}

/// Send the newest ack, at most one in each interval.
async fn acknowledge(mut acked: watch::Receiver<Ack>, answers: Sender) {
    while acked.changed().await.is_ok() {
        let ack = Some(acked.borrow_and_update().clone());
        let message = PublishResponse { accepted: None, ack };
        if answers.send(Ok(bytes(&message))).await.is_err() {
            return;
        }
        tokio::time::sleep(ACK_INTERVAL).await;
    }
}

struct Subscribe(Arc<Doors>);

impl ServerStreamingService<Bytes> for Subscribe {
    type Response = Bytes;
    type ResponseStream = Out;
    type Future = Answer<Out>;

    fn call(&mut self, _request: Request<Bytes>) -> Answer<Out> {
        let doors = self.0.clone();
        Box::pin(async move {
            let (subscriber, receiver) = mpsc::channel(SUBSCRIBER_QUEUE);
            doors.queue(Work::Subscribe(subscriber)).await;
            Ok(out(receiver))
        })
    }
}

struct Describe;

impl UnaryService<Bytes> for Describe {
    type Response = Bytes;
    type Future = Answer<Bytes>;

    fn call(&mut self, _request: Request<Bytes>) -> Answer<Bytes> {
        Box::pin(async { Ok(Response::new(Bytes::new())) })
    }
}

/// The service, by the paths of its calls.
#[derive(Clone)]
pub struct Plane(pub Arc<Doors>);

impl NamedService for Plane {
    const NAME: &'static str = "lmerge.v1.Lmerge";
}

impl tower::Service<http::Request<Body>> for Plane {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let doors = self.0.clone();
        Box::pin(async move {
            let limit = Some(MESSAGE_BYTES_MAX);
            let mut grpc = Grpc::new(Raw).apply_max_message_size_config(limit, limit);
            Ok(match request.uri().path() {
                "/lmerge.v1.Lmerge/Publish" => grpc.streaming(Publish(doors), request).await,
                "/lmerge.v1.Lmerge/Subscribe" => grpc.server_streaming(Subscribe(doors), request).await,
                "/lmerge.v1.Lmerge/DescribeMerge" => grpc.unary(Describe, request).await,
                path => Status::unimplemented(path).into_http(),
            })
        })
    }
}
