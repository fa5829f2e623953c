//! Batches as columns of bytes, just as the wire carries them (`Batch` in proto/lmerge/v1/lmerge.proto).
//!
//! A [`View`] borrows the columns of a batch that came; [`Columns`] owns those of a batch that the core writes. All
//! integers are little-endian bytes on every machine, so neither needs a conversion at the wire. Bytes from peers pass
//! only through [`View::decode`]. After it every index that the accessors use is in range.

use crate::element::{ADJUST, INF, INSERT, NEG_INF, STABLE};

/// Eight bytes of a time.
type Time = [u8; 8];

/// A borrowed batch. `ve`, `vold` and `ends` may be empty where the wire allows it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    kinds: &'a [u8],
    vs: &'a [Time],
    ve: &'a [Time],
    vold: &'a [Time],
    ends: &'a [[u8; 4]],
    /// Where the first payload starts: not 0 for a part of a batch.
    first: usize,
    payloads: &'a [u8],
    /// The hashes of the keys, if they were computed for the whole batch: see [`View::with_hashes`].
    hashes: &'a [u32],
}

/// The columns of one message before they are checked. Shapes: n kinds, 8n, 8n, 8n, 4n bytes, concatenated payloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw<'a> {
    pub kinds: &'a [u8],
    pub vs: &'a [u8],
    pub ve: &'a [u8],
    pub vold: &'a [u8],
    pub ends: &'a [u8],
    pub payloads: &'a [u8],
}

/// The reason why columns are no batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    pub message: String,
    /// Whether a limit was exceeded; otherwise the columns contradict each other.
    pub is_limit: bool,
}

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub elements: usize,
    pub payload_bytes: usize,
}

impl<'a> View<'a> {
    /// The batch that `raw` holds. The messages are those of `lmerge/wire/codec.py`.
    pub fn decode(raw: &Raw<'a>, limits: Limits) -> Result<View<'a>, DecodeError> {
        let n = raw.kinds.len();
        if n > limits.elements {
            return Err(limit(format!(
                "a batch of {n} elements is above the limit of {}",
                limits.elements
            )));
        }
        if let Some(at) = raw.kinds.iter().position(|&kind| kind > STABLE) {
            return Err(invalid(format!(
                "column kinds, element {at}: unknown kind {}",
                raw.kinds[at]
            )));
        }
        let (mut stables, mut adjusts) = (0, 0);
        for &kind in raw.kinds {
            stables += usize::from(kind == STABLE);
            adjusts += usize::from(kind == ADJUST);
        }
        let view = View {
            kinds: raw.kinds,
            vs: times("vs", raw.vs, n, false)?,
            ve: times("ve", raw.ve, n, stables == n)?,
            vold: times("vold", raw.vold, n, adjusts == 0)?,
            ends: payload_ends(raw, n, limits, stables == n)?,
            first: 0,
            payloads: raw.payloads,
            hashes: &[],
        };
        view.check_zeros(stables)?;
        Ok(view)
    }

    /// The batch of trusted columns: [`View::decode`] has checked them, or the core has written them.
    pub fn known(raw: &Raw<'a>) -> View<'a> {
        View {
            kinds: raw.kinds,
            vs: raw.vs.as_chunks().0,
            ve: raw.ve.as_chunks().0,
            vold: raw.vold.as_chunks().0,
            ends: raw.ends.as_chunks().0,
            first: 0,
            payloads: raw.payloads,
            hashes: &[],
        }
    }

    /// The batch with the hash of each key (`hash::KeyHash`). They belong to the whole batch, not to a slice of it.
    pub(crate) fn with_hashes<'b>(&self, hashes: &'b [u32]) -> View<'b>
    where
        'a: 'b,
    {
        View { hashes, ..*self }
    }

    /// The hash of a key that was computed for the whole batch.
    #[inline(always)]
    pub(crate) fn hash(&self, at: usize) -> Option<u32> {
        self.hashes.get(at).copied()
    }

    /// Check that columns are zero or empty for the elements that do not use them.
    fn check_zeros(&self, stables: usize) -> Result<(), DecodeError> {
        if !self.vold.is_empty() {
            for (at, &kind) in self.kinds.iter().enumerate() {
                let vold = i64::from_le_bytes(self.vold[at]);
                if kind != ADJUST && vold != 0 {
                    let why = "only an adjust has a Vold";
                    return Err(invalid(format!("column vold, element {at}: {why}, but {vold} came")));
                }
            }
        }
        if stables == 0 {
            return Ok(());
        }
        let is_stable = |&(_, &kind): &(usize, &u8)| kind == STABLE;
        for (at, _) in self.kinds.iter().enumerate().filter(is_stable) {
            let ve = self.ve(at);
            if ve != 0 {
                return Err(invalid(format!(
                    "column ve, element {at}: a stable has no Ve, but {ve} came"
                )));
            }
        }
        for (at, _) in self.kinds.iter().enumerate().filter(is_stable) {
            let payload = self.payload(at);
            if !payload.is_empty() {
                let shown: String = bytes_literal(payload).chars().take(64).collect();
                let why = "a stable has no payload";
                return Err(invalid(format!(
                    "column payloads, element {at}: {why}, but {shown} came"
                )));
            }
        }
        Ok(())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub fn kinds(&self) -> &'a [u8] {
        self.kinds
    }

    pub fn kind(&self, at: usize) -> u8 {
        self.kinds[at]
    }

    pub fn vs(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.vs[at])
    }

    pub fn ve(&self, at: usize) -> i64 {
        self.ve.get(at).map_or(0, |ve| i64::from_le_bytes(*ve))
    }

    pub fn vold(&self, at: usize) -> i64 {
        self.vold.get(at).map_or(0, |vold| i64::from_le_bytes(*vold))
    }

    pub fn payload(&self, at: usize) -> &'a [u8] {
        if self.ends.is_empty() {
            return &[];
        }
        let start = if at == 0 { self.first } else { self.end(at - 1) };
        &self.payloads[start..self.end(at)]
    }

    fn end(&self, at: usize) -> usize {
        u32::from_le_bytes(self.ends[at]) as usize
    }

    /// The column of Vs as bytes. The other columns likewise; they are empty where the batch omits them.
    pub fn vs_bytes(&self) -> &'a [u8] {
        self.vs.as_flattened()
    }

    pub fn ve_bytes(&self) -> &'a [u8] {
        self.ve.as_flattened()
    }

    pub fn vold_bytes(&self) -> &'a [u8] {
        self.vold.as_flattened()
    }

    /// The payloads one after another.
    pub fn payloads_bytes(&self) -> &'a [u8] {
        &self.payloads[self.first..self.first + self.payload_bytes()]
    }

    /// Where the payload of an element ends in `payloads_bytes`.
    pub fn payload_end(&self, at: usize) -> usize {
        if self.ends.is_empty() {
            0
        } else {
            self.end(at) - self.first
        }
    }

    /// Bytes of the largest payload.
    pub fn largest_payload(&self) -> usize {
        let (mut start, mut largest) = (self.first as u32, 0);
        for end in self.ends {
            let end = u32::from_le_bytes(*end);
            largest = largest.max(end - start);
            start = end;
        }
        largest as usize
    }

    /// Bytes of all payloads together.
    pub fn payload_bytes(&self) -> usize {
        self.ends
            .last()
            .map_or(0, |end| u32::from_le_bytes(*end) as usize - self.first)
    }

    /// Inserts, adjusts and stables.
    pub fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for kind in [INSERT, ADJUST, STABLE] {
            counts[usize::from(kind)] = self.kinds.iter().filter(|&&k| k == kind).count();
        }
        counts
    }

    /// The largest end and former end, the smallest former end, and at most `samples` ends of inserts, evenly spaced.
    /// Without such elements: -INF, INF, none.
    pub fn end_bounds(&self, samples: usize) -> (i64, i64, Vec<i64>) {
        let (mut largest, mut smallest_former) = (NEG_INF, INF);
        let [inserts, ..] = self.counts();
        let step = inserts.div_ceil(samples.max(1)).max(1);
        let (mut ends, mut seen) = (Vec::with_capacity(inserts.div_ceil(step)), 0);
        for at in 0..self.len() {
            match self.kinds[at] {
                INSERT => {
                    if seen % step == 0 {
                        ends.push(self.ve(at));
                    }
                    seen += 1;
                }
                ADJUST => {
                    largest = largest.max(self.vold(at));
                    smallest_former = smallest_former.min(self.vold(at));
                }
                _ => continue,
            }
            largest = largest.max(self.ve(at));
        }
        (largest, smallest_former, ends)
    }

    /// The elements from `start` up to, not including, `stop`.
    pub fn slice(&self, start: usize, stop: usize) -> View<'a> {
        let part = |column: &'a [Time]| {
            if column.is_empty() {
                column
            } else {
                &column[start..stop]
            }
        };
        let has_ends = !self.ends.is_empty();
        View {
            kinds: &self.kinds[start..stop],
            vs: &self.vs[start..stop],
            ve: part(self.ve),
            vold: part(self.vold),
            ends: if has_ends { &self.ends[start..stop] } else { self.ends },
            first: if has_ends && start > 0 {
                self.end(start - 1)
            } else {
                self.first
            },
            payloads: self.payloads,
            hashes: &[],
        }
    }

    /// The indices at which to cut the batch into pieces of at most `elements_max` elements and `bytes_max` bytes of
    /// columns. A single element always fits.
    pub fn cuts(&self, elements_max: usize, bytes_max: usize) -> Vec<usize> {
        let mut cuts = Vec::new();
        let (mut start, mut used) = (0, 0);
        for at in 0..self.len() {
            let size = self.payload(at).len() + ELEMENT_BYTES;
            used += size;
            if at > start && (used > bytes_max || at - start == elements_max) {
                cuts.push(at);
                (start, used) = (at, size);
            }
        }
        if !self.is_empty() {
            cuts.push(self.len());
        }
        cuts
    }
}

/// kinds, vs, ve, vold and payload end of one element.
const ELEMENT_BYTES: usize = 1 + 8 + 8 + 8 + 4;

/// A batch that the core has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    pub kinds: Vec<u8>,
    pub vs: Vec<u8>,
    pub ve: Vec<u8>,
    pub vold: Vec<u8>,
    pub ends: Vec<u8>,
    pub payloads: Vec<u8>,
}

impl Columns {
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Inserts of events given as (vs, payload, ve), in their order.
    pub fn inserts<'a>(events: impl IntoIterator<Item = (i64, &'a [u8], i64)>) -> Columns {
        let mut columns = Columns::default();
        for (vs, payload, ve) in events {
            columns.insert(vs, ve, payload);
        }
        columns
    }

    /// Append one element.
    ///
    /// # Panics
    /// If the payloads of one batch exceed 4 GiB: the wire's ends have 32 bits.
    #[inline]
    pub fn push(&mut self, kind: u8, vs: i64, ve: i64, vold: i64, payload: &[u8]) {
        self.payloads.extend_from_slice(payload);
        let end = u32::try_from(self.payloads.len()).expect("one batch has at most 4 GiB of payloads");
        self.kinds.push(kind);
        self.vs.extend_from_slice(&vs.to_le_bytes());
        self.ve.extend_from_slice(&ve.to_le_bytes());
        self.vold.extend_from_slice(&vold.to_le_bytes());
        self.ends.extend_from_slice(&end.to_le_bytes());
    }

    pub fn insert(&mut self, vs: i64, ve: i64, payload: &[u8]) {
        self.push(INSERT, vs, ve, 0, payload);
    }

    pub fn adjust(&mut self, vs: i64, vold: i64, ve: i64, payload: &[u8]) {
        self.push(ADJUST, vs, ve, vold, payload);
    }

    pub fn stable(&mut self, vc: i64) {
        self.push(STABLE, vc, 0, 0, &[]);
    }

    /// Make room for a batch.
    pub fn reserve(&mut self, batch: &View<'_>) {
        let count = batch.len();
        self.kinds.reserve(count);
        for column in [&mut self.vs, &mut self.ve, &mut self.vold] {
            column.reserve(8 * count);
        }
        self.ends.reserve(4 * count);
        self.payloads.reserve(batch.payload_bytes());
    }

    /// Give room back if more than half of it is unused.
    pub fn trim(&mut self) {
        let columns = [
            &mut self.kinds,
            &mut self.vs,
            &mut self.ve,
            &mut self.vold,
            &mut self.ends,
            &mut self.payloads,
        ];
        for column in columns {
            if column.capacity() > 2 * column.len() {
                column.shrink_to_fit();
            }
        }
    }

    /// Append a whole batch.
    ///
    /// # Panics
    /// As [`Columns::push`].
    pub fn extend(&mut self, batch: &View<'_>) {
        let count = batch.len();
        let before = self.payloads.len();
        u32::try_from(before + batch.payload_bytes()).expect("one batch has at most 4 GiB of payloads");
        self.kinds.extend_from_slice(batch.kinds);
        self.vs.extend_from_slice(batch.vs_bytes());
        append_times(&mut self.ve, batch.ve_bytes(), count);
        append_times(&mut self.vold, batch.vold_bytes(), count);
        self.payloads.extend_from_slice(batch.payloads_bytes());
        if batch.ends.is_empty() {
            self.ends.extend((before as u32).to_le_bytes().repeat(count));
            return;
        }
        let moved = (before as u32).wrapping_sub(batch.first as u32);
        let ends = batch
            .ends
            .iter()
            .map(|&end| u32::from_le_bytes(end).wrapping_add(moved));
        self.ends.extend(ends.flat_map(u32::to_le_bytes));
    }

    /// The batch as a view.
    pub fn view(&self) -> View<'_> {
        View::known(&self.raw())
    }

    /// The columns in the form of the wire.
    pub fn raw(&self) -> Raw<'_> {
        Raw {
            kinds: &self.kinds,
            vs: &self.vs,
            ve: &self.ve,
            vold: &self.vold,
            ends: &self.ends,
            payloads: &self.payloads,
        }
    }
}

/// Append a column of times, which is zero where the batch omits it.
fn append_times(column: &mut Vec<u8>, times: &[u8], count: usize) {
    if times.is_empty() {
        column.resize(column.len() + 8 * count, 0);
    } else {
        column.extend_from_slice(times);
    }
}

fn times<'a>(name: &str, data: &'a [u8], n: usize, may_be_empty: bool) -> Result<&'a [Time], DecodeError> {
    if data.is_empty() && may_be_empty {
        return Ok(&[]);
    }
    if data.len() != 8 * n {
        let (len, need) = (data.len(), 8 * n);
        return Err(invalid(format!(
            "column {name} has {len} bytes where {n} elements need {need}"
        )));
    }
    Ok(data.as_chunks().0)
}

fn payload_ends<'a>(raw: &Raw<'a>, n: usize, limits: Limits, may_be_empty: bool) -> Result<&'a [[u8; 4]], DecodeError> {
    let total = raw.payloads.len();
    if raw.ends.is_empty() && may_be_empty {
        if total > 0 {
            return Err(invalid(format!(
                "column payloads has {total} bytes, but column payload_ends is empty"
            )));
        }
        return Ok(&[]);
    }
    if raw.ends.len() != 4 * n {
        let (len, need) = (raw.ends.len(), 4 * n);
        return Err(invalid(format!(
            "column payload_ends has {len} bytes where {n} elements need {need}"
        )));
    }
    let ends: &[[u8; 4]] = raw.ends.as_chunks().0;
    let mut before = 0;
    let mut too_large = None;
    for (at, end) in ends.iter().enumerate() {
        let end = u32::from_le_bytes(*end) as usize;
        if end < before {
            return Err(invalid(format!(
                "column payload_ends, element {at}: {end} is less than {before} before it"
            )));
        }
        if end - before > limits.payload_bytes && too_large.is_none() {
            too_large = Some((at, end - before));
        }
        before = end;
    }
    if before != total {
        return Err(invalid(format!(
            "column payload_ends ends at {before}, but column payloads has {total} bytes"
        )));
    }
    if let Some((at, size)) = too_large {
        let max = limits.payload_bytes;
        return Err(limit(format!(
            "column payloads, element {at}: {size} bytes are above the limit of {max}"
        )));
    }
    Ok(ends)
}

fn invalid(message: String) -> DecodeError {
    DecodeError {
        message,
        is_limit: false,
    }
}

fn limit(message: String) -> DecodeError {
    DecodeError {
        message,
        is_limit: true,
    }
}

/// `payload` as Python prints bytes, so that both implementations give the same messages.
fn bytes_literal(payload: &[u8]) -> String {
    let quote = if payload.contains(&b'\'') && !payload.contains(&b'"') {
        '"'
    } else {
        '\''
    };
    let mut text = format!("b{quote}");
    for &byte in payload {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\'' if quote == '\'' => text.push_str("\\'"),
            32..=126 => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push(quote);
    text
}
