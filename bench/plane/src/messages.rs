//! The messages without a batch, as far as the prototype needs them: proto/lmerge/v1/lmerge.proto.

use bytes::Bytes;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Attach {
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct PublishRequest {
    #[prost(message, optional, tag = "1")]
    pub attach: Option<Attach>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Limits {
    #[prost(uint64, tag = "1")]
    pub message_bytes: u64,
    #[prost(uint64, tag = "2")]
    pub payload_bytes: u64,
    #[prost(uint64, tag = "3")]
    pub batch_elements: u64,
    #[prost(uint64, tag = "6")]
    pub subscriber_queue_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub live_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Accepted {
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    #[prost(string, tag = "2")]
    pub algorithm: String,
    #[prost(sfixed64, tag = "4")]
    pub stable_point: i64,
    #[prost(bool, tag = "5")]
    pub joined: bool,
    #[prost(message, optional, tag = "6")]
    pub limits: Option<Limits>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ack {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(sfixed64, tag = "2")]
    pub stable_point: i64,
    #[prost(bool, tag = "3")]
    pub joined: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct PublishResponse {
    #[prost(message, optional, tag = "1")]
    pub accepted: Option<Accepted>,
    #[prost(message, optional, tag = "2")]
    pub ack: Option<Ack>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SnapshotBegin {
    #[prost(sfixed64, tag = "1")]
    pub stable_point: i64,
    #[prost(uint64, tag = "5")]
    pub epoch: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SnapshotEnd {}

#[derive(Clone, PartialEq, Message)]
pub struct SubscribeResponse {
    #[prost(message, optional, tag = "1")]
    pub begin: Option<SnapshotBegin>,
    #[prost(message, optional, tag = "3")]
    pub end: Option<SnapshotEnd>,
}

/// The bytes of a message.
pub fn bytes(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
